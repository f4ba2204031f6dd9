"""Measures in paired rounds, decides with stated rules, compares with baselines, and reports."""
