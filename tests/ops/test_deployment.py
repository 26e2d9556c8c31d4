"""Units, images and manifests: valid by their own tools, and right where those do not look."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import click
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from penstock.cli import commands
from penstock.model.durations import parse_duration
from penstock.settings import Settings
from tests.ops.tools import OPS, program, run

UNITS = sorted((OPS / "systemd").glob("*.service"))
DOCKERFILE = (OPS / "docker" / "Dockerfile").read_text("utf-8")
KUBERNETES = "1.30"


# --- systemd ----------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    analyze = program("systemd-analyze")
    # It looks for the program, which is not where it will be.
    text = unit.read_text("utf-8").replace("/opt/app/.venv/bin/penstock", sys.executable)
    copy = tmp_path / unit.name
    copy.write_text(text, "utf-8")
    verified = run(analyze, "verify", "--man=no", copy)
    about_us = [line for line in verified.stderr.splitlines() if unit.name in line]
    assert (verified.returncode, about_us) == (0, [])


def test_systemd_waits_longer_than_the_grace() -> None:
    unit = (OPS / "systemd" / "penstock-worker.service").read_text("utf-8")
    found = re.search(r"^TimeoutStopSec=(.+)$", unit, re.MULTILINE)
    assert found is not None
    assert parse_duration(found[1]) > Settings().worker.grace


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_command_of_a_unit_is_understood(unit: Path) -> None:
    found = re.search(r"^ExecStart=\S+/penstock (.+)$", unit.read_text("utf-8"), re.MULTILINE)
    assert found is not None
    _is_understood(shlex.split(found[1].replace("${WORKER_APP}", "orders:app")))


# --- containers -------------------------------------------------------------------------


def test_the_image_runs_as_a_user_and_passes_signals_on() -> None:
    last_stage = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.search(r"^USER (?!root)", last_stage, re.MULTILINE)
    assert 'ENTRYPOINT ["penstock"]' in last_stage  # the exec form: no shell in between


def test_what_the_image_copies_is_there() -> None:
    root = OPS.parent
    for line in re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE, re.MULTILINE):
        for source in line.split():
            assert (root / source).exists(), source


def test_compose_waits_longer_than_the_grace_and_its_commands_are_understood() -> None:
    compose = yaml.safe_load((OPS / "docker" / "compose.yaml").read_text("utf-8"))
    services = compose["services"]
    assert parse_duration(services["worker"]["stop_grace_period"]) > Settings().worker.grace
    ours = [service for service in services.values() if "build" in service]
    assert len(ours) == 3
    for service in ours:
        _is_understood(service["command"])
        for variable in service["environment"]:
            assert variable == "PENSTOCK_DATABASE_URL"


# --- Kubernetes -------------------------------------------------------------------------


def manifests() -> list[dict[str, Any]]:
    kinds = []
    for file in sorted((OPS / "kubernetes").glob("*.yaml")):
        if file.name != "kustomization.yaml":
            kinds += list(yaml.safe_load_all(file.read_text("utf-8")))
    return kinds


def _named(manifest: dict[str, Any]) -> str:
    return f"{manifest['kind']}-{manifest['metadata']['name']}"


@pytest.mark.parametrize("manifest", manifests(), ids=_named)
def test_a_manifest_fits_the_schema_of_kubernetes(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_the_schema_would_notice_a_field_that_does_not_exist() -> None:
    (worker,) = [one for one in manifests() if _named(one) == "Deployment-tasks-worker"]
    worker["spec"]["template"]["spec"]["terminationGrace"] = 60
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(worker, KUBERNETES, strict=True)


def test_kubectl_puts_the_manifests_together() -> None:
    built = run(program("kubectl"), "kustomize", OPS / "kubernetes")
    assert built.returncode == 0, built.stderr
    assert len(list(yaml.safe_load_all(built.stdout))) == len(manifests())


def test_a_pod_is_given_longer_than_its_grace_and_is_probed_where_the_worker_answers() -> None:
    (worker,) = [one for one in manifests() if _named(one) == "Deployment-tasks-worker"]
    pod = worker["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (grace,) = [one for one in container["args"] if one.startswith("--grace=")]
    ends_after = pod["terminationGracePeriodSeconds"]
    assert parse_duration(grace.partition("=")[2]).total_seconds() < ends_after
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert "replicas" not in worker["spec"]  # the autoscaler's to say


def test_commands_of_pods_are_understood() -> None:
    pods = [one["spec"]["template"]["spec"] for one in manifests() if "template" in one["spec"]]
    assert len(pods) == 3
    for pod in pods:
        assert pod["enableServiceLinks"] is False
        for container in pod["containers"]:
            _is_understood(container["args"])


def _is_understood(arguments: list[str]) -> None:
    """Read as the command line reads it, and not run."""
    command: click.Command = commands
    context = click.Context(commands, info_name="penstock")
    while isinstance(command, click.Group):
        word, found, arguments = command.resolve_command(context, arguments)
        assert found is not None
        command, context = found, click.Context(found, info_name=word, parent=context)
    command.make_context(context.info_name, list(arguments), parent=context.parent)
