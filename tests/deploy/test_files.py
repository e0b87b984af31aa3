"""What deploy/ says of the gateway is so: its settings, ports, paths and metrics, and how long it takes to stop."""

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gateway.books.metrics import Metrics
from gateway.cli import main
from gateway.routes import BY_PATH
from gateway.server.serve import KEEP_ALIVE_S
from gateway.settings import Settings, load

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = [
    document for file in sorted(DEPLOY.glob("kubernetes/*.yaml")) for document in yaml.safe_load_all(file.read_text())
]
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
NGINX = (DEPLOY / "nginx.conf").read_text()
UNIT = (DEPLOY / "messages-gateway.service").read_text()


def of_kind(kind: str) -> Any:
    (found,) = [document for document in KUBERNETES if document.get("kind") == kind]
    return found


POD = of_kind("Deployment")["spec"]["template"]
CONTAINER = POD["spec"]["containers"][0]


def settings_from(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings of a gateway with these variables, each of which is one."""
    for name in list(os.environ):
        if name.startswith("GATEWAY_"):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        assert name.removeprefix("GATEWAY_").lower() in Settings.model_fields
        monkeypatch.setenv(name, value)
    return load({}, None)


# --- Kubernetes -------------------------------------------------------------------------------------------------------


def test_the_pod_runs_with_settings_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_from({pair["name"]: pair["value"] for pair in CONTAINER["env"]}, monkeypatch)
    assert settings.host == "0.0.0.0"
    assert [port["containerPort"] for port in CONTAINER["ports"]] == [settings.port]
    assert CliRunner().invoke(main, [*CONTAINER["args"], "--help"]).exit_code == 0


def test_the_keys_come_from_a_secret_that_is_in_no_file() -> None:
    text = (DEPLOY / "kubernetes" / "gateway.yaml").read_text()
    (source,) = CONTAINER["envFrom"]
    assert f"kubectl create secret generic {source['secretRef']['name']} " in text
    for name in re.findall(r"--from-literal=GATEWAY_(\w+)=", text):
        assert name.lower() in Settings.model_fields
    assert not [document for document in KUBERNETES if document.get("kind") == "Secret"]


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_probes_ask_what_needs_no_key(probe: str) -> None:
    asked = CONTAINER[probe]["httpGet"]
    assert asked["path"] == ("/ready" if probe == "readinessProbe" else "/health")
    assert not BY_PATH[asked["path"]].needs_key
    assert asked["port"] in [port["name"] for port in CONTAINER["ports"]]


def test_the_pod_has_the_time_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_from({pair["name"]: pair["value"] for pair in CONTAINER["env"]}, monkeypatch)
    before = int(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])
    assert POD["spec"]["terminationGracePeriodSeconds"] >= before + settings.drain_s + 10


def test_the_pod_may_do_no_more_than_it_must() -> None:
    assert POD["spec"]["enableServiceLinks"] is False
    assert POD["spec"]["automountServiceAccountToken"] is False
    assert POD["spec"]["securityContext"]["runAsNonRoot"] is True
    user = POD["spec"]["securityContext"]["runAsUser"]
    assert f"USER {user}:" in DOCKERFILE
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"name": "tmp", "mountPath": "/tmp"} in CONTAINER["volumeMounts"]


def test_everything_selects_the_same_pods() -> None:
    labels = POD["metadata"]["labels"]
    for kind in ("Deployment", "PodDisruptionBudget", "PodMonitor"):
        assert of_kind(kind)["spec"]["selector"]["matchLabels"] == labels
    service = of_kind("Service")["spec"]
    assert service["selector"] == labels
    assert service["ports"][0]["targetPort"] in [port["name"] for port in CONTAINER["ports"]]
    assert of_kind("PodMonitor")["spec"]["podMetricsEndpoints"][0]["port"] == service["ports"][0]["targetPort"]
    scaled = of_kind("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert (scaled["kind"], scaled["name"]) == ("Deployment", of_kind("Deployment")["metadata"]["name"])


def test_the_autoscaler_looks_at_a_gauge_that_there_is() -> None:
    (metric,) = of_kind("HorizontalPodAutoscaler")["spec"]["metrics"]
    name = metric["pods"]["metric"]["name"]
    assert f"# TYPE {name} gauge" in Metrics().render().decode()
    (adapted,) = [document for document in KUBERNETES if "rules" in document]
    (rule,) = adapted["rules"]["custom"]
    assert rule["name"]["as"] == name
    assert re.fullmatch(rule["name"]["matches"], name)
    assert rule["seriesQuery"].startswith(name + "{")


# --- Docker -----------------------------------------------------------------------------------------------------------


def test_the_image_has_what_the_package_is_made_of() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    linked = [link.resolve() for package in packages for link in (ROOT / package).rglob("*") if link.is_symlink()]
    wanted = [*packages, "pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]]
    wanted += [str(target.relative_to(ROOT)) for target in linked]
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == set(wanted)


def test_the_image_runs_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_from(dict(re.findall(r"(GATEWAY_\w+)=(\S+)(?= \\|\n)", DOCKERFILE)), monkeypatch)
    assert (settings.host, f"EXPOSE {settings.port}\n" in DOCKERFILE) == ("0.0.0.0", True)
    entry, command = (json.loads(found) for found in re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])$", DOCKERFILE, re.M))
    assert entry[0] in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert CliRunner().invoke(main, [*command, "--help"]).exit_code == 0
    (check,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*?\])$", DOCKERFILE.replace("\\\n", ""), re.M)
    program = json.loads(check)
    assert "/health" in program[2]
    compile(program[2], "HEALTHCHECK", "exec")


# --- systemd ----------------------------------------------------------------------------------------------------------


def unit(name: str) -> str:
    return str(re.findall(rf"^{name}=(.*)$", UNIT, re.M)[-1])


def test_the_service_runs_the_gateway_and_has_the_time_to_stop() -> None:
    _, *arguments = shlex.split(unit("ExecStart"))
    assert CliRunner().invoke(main, [arguments[0], "--help"]).exit_code == 0
    assert arguments[1:] == ["--config", "/etc/messages-gateway/gateway.toml"]
    assert int(unit("TimeoutStopSec")) >= Settings.model_fields["drain_s"].default + 10
    for name in re.findall(r"GATEWAY_(\w+)=…", UNIT):
        assert name.lower() in Settings.model_fields


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    program = tmp_path / "messages-gateway"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    file = tmp_path / "messages-gateway.service"
    file.write_text(UNIT.replace("/opt/messages-gateway/bin/messages-gateway", str(program)))
    for check in (["verify", str(file)], ["security", "--offline=true", "--threshold=20", str(file)]):
        run = subprocess.run(["systemd-analyze", *check], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
        assert run.stderr == ""


# --- nginx ------------------------------------------------------------------------------------------------------------


def directive(name: str) -> str:
    (value,) = re.findall(rf"^ *{name} (.*);$", NGINX, re.M)
    return str(value)


def test_nginx_waits_longer_than_the_gateway_and_lets_go_first() -> None:
    defaults = {name: field.default for name, field in Settings.model_fields.items()}
    waits = int(directive("proxy_read_timeout").removesuffix("s"))
    assert waits > max(defaults["first_byte_timeout_s"], defaults["idle_timeout_s"])
    assert int(directive("client_max_body_size").removesuffix("m")) << 20 == defaults["max_body_bytes"]
    assert f"the gateway keeps them for {KEEP_ALIVE_S} s" in NGINX
    assert KEEP_ALIVE_S > 60


def test_nginx_asks_again_only_where_nothing_can_have_begun() -> None:
    assert directive("proxy_next_upstream") == "error non_idempotent"
    assert not re.search(r"^ *proxy_request_buffering off", NGINX, re.M)
