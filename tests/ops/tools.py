"""Programs that validate what is in ops/, and files from there."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

OPS = Path(__file__).parents[2] / "ops"

# Where each comes from, for the line that says why a test was skipped.
PACKAGES = {
    "promtool": "Debian's package prometheus",
    "prometheus": "Debian's package prometheus",
    "systemd-analyze": "Debian's package systemd",
    "kubectl": "kubernetes.io, or Debian's package kubernetes-client",
    "pgbouncer": "Debian's package pgbouncer",
    "pg_dump": "Debian's package postgresql-client",
    "docker": "Debian's package docker.io",
}


def program(name: str) -> str:
    """The path of a program, or a skip that says where to get it."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"there is no {name} here: it comes with {PACKAGES[name]}")
    return found


def run(*command: str | Path, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(one) for one in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def dashboard_queries() -> list[tuple[str, str]]:
    """Every query of the dashboard, with the title of its panel."""
    dashboard: dict[str, Any] = json.loads((OPS / "grafana" / "penstock.json").read_text("utf-8"))
    return [
        (panel["title"], target["expr"])
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]
