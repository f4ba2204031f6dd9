"""Two experiments."""

from __future__ import annotations

from impl.batching import Dynamic, Single
from impl.costs import Costs, cost_ms
from impl.experiment import Scenario
from impl.schedulers.normal import normal
from impl.schedulers.overlap import overlap
from impl.schedulers.overlap_post_thread import overlap_post_thread
from impl.workload import burst, constant
from reports.cases import Experiment

STAGES = Costs(pre=cost_ms(3), forward=cost_ms(5), post=cost_ms(3))
FIRST = Experiment(
    Scenario("first", burst(4), Single(), STAGES),
    {"normal": normal, "overlap": overlap, "overlap_post_thread": overlap_post_thread},
    section="7",
)
SECOND = Experiment(
    Scenario("second", constant(8, qps=100), Dynamic(4), STAGES), {"normal": normal, "overlap": overlap}, section="11"
)
EXPERIMENTS = (FIRST, SECOND)
