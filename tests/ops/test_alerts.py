"""The alert rules: promtool runs their tests, and their tests would notice a wrong rule."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from penstock.integrations import declared
from tests.ops.tools import OPS, dashboard_queries, program, run

RULES = OPS / "prometheus" / "penstock.rules.yml"
TESTS = OPS / "prometheus" / "penstock.rules.test.yml"
RULE_LIST = yaml.safe_load(RULES.read_text("utf-8"))["groups"][0]["rules"]
ALERTS = [rule["alert"] for rule in RULE_LIST if "alert" in rule]


def test_promtool_accepts_the_rules_and_the_example_of_a_configuration() -> None:
    promtool = program("promtool")
    for what, file in (("rules", RULES), ("config", OPS / "prometheus" / "prometheus.yml")):
        checked = run(promtool, "check", what, file)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_fires_when_it_should_and_is_quiet_otherwise() -> None:
    tested = run(program("promtool"), "test", "rules", TESTS)
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize("wrong", ["vector(1) < 0", "vector(1)"], ids=["never", "always"])
def test_rules_that_fire_never_or_always_fail_their_tests(wrong: str, tmp_path: Path) -> None:
    promtool = program("promtool")
    rules = yaml.safe_load(RULES.read_text("utf-8"))
    for rule in rules["groups"][0]["rules"]:
        if "alert" in rule:
            rule["expr"] = wrong
    (tmp_path / RULES.name).write_text(yaml.safe_dump(rules), "utf-8")
    shutil.copy(TESTS, tmp_path)
    tested = run(promtool, "test", "rules", tmp_path / TESTS.name)
    complaints = tested.stdout + tested.stderr
    assert [alert for alert in ALERTS if f"alertname: {alert}," not in complaints] == []


def test_every_alert_has_a_severity_a_summary_and_a_remedy() -> None:
    for rule in RULE_LIST:
        if "alert" in rule:
            assert rule["labels"]["severity"] in {"warning", "critical"}
            assert set(rule["annotations"]) == {"summary", "remedy"}
            assert "for" in rule


def test_rules_and_dashboard_ask_for_metrics_that_exist() -> None:
    exposed = {metric.exposed for metric in (*declared.OF_A_WORKER, *declared.OF_A_DATABASE)}
    exprs = [rule["expr"] for rule in RULE_LIST] + [query for _, query in dashboard_queries()]
    for expr in exprs:
        for name in re.findall(r"\bpenstock_\w+", expr):
            assert re.sub(r"_(bucket|count|sum)$", "", name) in exposed, expr


def test_the_dashboard_shows_every_metric() -> None:
    asked = " ".join(query for _, query in dashboard_queries())
    for metric in (*declared.OF_A_WORKER, *declared.OF_A_DATABASE):
        assert metric.exposed in asked
