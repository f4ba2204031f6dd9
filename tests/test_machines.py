from __future__ import annotations

import sys

import pytest

from impl.errors import DeviceUnavailable
from impl.machines import CpuMachine, CudaMachine, Machine, VirtualMachine, why_no_cuda
from reports.machine import describe, has_gil


def test_only_the_virtual_machine_is_exact() -> None:
    machines: list[Machine] = [VirtualMachine(), CpuMachine()]
    assert [(machine.name, machine.is_exact) for machine in machines] == [("virtual", True), ("cpu", False)]


@pytest.mark.skipif(why_no_cuda() is None, reason="there is a GPU here")
def test_a_missing_gpu_is_told_with_the_reason_and_what_to_do() -> None:
    with pytest.raises(DeviceUnavailable) as caught:
        CudaMachine()
    assert str(caught.value) == why_no_cuda()
    assert any(remedy in str(caught.value) for remedy in ("install", "check the driver"))


def test_a_missing_torch_is_told_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "PyTorch does not import" in (why_no_cuda() or "")
    assert "pip install -e '.[gpu]'" in (why_no_cuda() or "")


def test_the_virtual_machine_is_the_same_everywhere_and_a_real_one_is_described() -> None:
    assert describe("virtual") == {"device": "virtual"}
    facts = describe("cpu")
    assert facts["device"] == "cpu"
    assert facts["gil"] is has_gil()
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
