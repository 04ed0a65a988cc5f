"""The toolchain itself: what it makes of the bindings, and what the stand-in does with a resource."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.infra.offline import behaviour, toolchain
from tests.infra.offline.bindings import UnknownForm, module_of, parse
from tests.infra.offline.schema import schema_of
from tests.infra.offline.toolchain import HERE, Toolchain, Unavailable, set_up, types_in
from tests.infra.offline.workspace import TERRAFORM, Workspace

RESOURCE = """
export interface ThingConfig extends cdktn.TerraformMetaArguments {
  /**
  * What it is for. Possible values: ["WORK", "PLAY"]
  *
  * Docs at Terraform Registry: {@link https://example.com/thing#purpose Thing#purpose}
  */
  readonly purpose?: string;
}
export function thingPartToHclTerraform(struct?: ThingPart): any {
  const attrs = {
    size: {
      value: cdktn.numberToHclTerraform(struct!.size),
      isBlock: false,
      type: "simple",
      storageClassType: "number",
    },
  };
}
export class ThingPartOutputReference extends cdktn.ComplexObject {
  // size - computed: false, optional: false, required: true
  private _size?: number;
  public get size() {
    return this.getNumberAttribute('size');
  }
}
export class ThingSeenOutputReference extends cdktn.ComplexObject {
  // at - computed: true, optional: false, required: false
  public get at() {
    return this.getStringAttribute('at');
  }
}
export class Thing extends cdktn.TerraformResource {
  public static readonly tfResourceType = "google_thing";
  // purpose - computed: false, optional: true, required: false
  private _purpose?: string;
  public get purpose() {
    return this.getStringAttribute('purpose');
  }
  // names - computed: true, optional: true, required: false
  public get names() {
    return cdktn.Fn.tolist(this.getListAttribute('names'));
  }
  // labels - computed: false, optional: true, required: false
  public get labels() {
    return this.getStringMapAttribute('labels');
  }
  // code_wo - computed: false, optional: true, required: false
  public get codeWo() {
    return this.getStringAttribute('code_wo');
  }
  // seen - computed: true, optional: false, required: false
  private _seen = new ThingSeenList(this, "seen", false);
  // part - computed: false, optional: false, required: true
  private _part = new ThingPartOutputReference(this, "part");
  protected synthesizeHclAttributes(): { [name: string]: any } {
    const attrs = {
      purpose: {
        value: cdktn.stringToHclTerraform(this._purpose),
        isBlock: false,
        type: "simple",
        storageClassType: "string",
      },
      names: {
        value: cdktn.listMapperHcl(cdktn.stringToHclTerraform, false)(this._names),
        isBlock: false,
        type: "set",
        storageClassType: "stringList",
      },
      labels: {
        value: cdktn.hashMapperHcl(cdktn.stringToHclTerraform)(this._labels),
        isBlock: false,
        type: "map",
        storageClassType: "stringMap",
      },
      code_wo: {
        value: cdktn.stringToHclTerraform(this._codeWo),
        isBlock: false,
        type: "simple",
        storageClassType: "string",
      },
      part: {
        value: thingPartToHclTerraform(this._part.internalValue),
        isBlock: true,
        type: "list",
        storageClassType: "ThingPartList",
      },
    };
  }
}
"""


def _schema(typescript: str) -> Any:
    return schema_of({"google_thing": parse(typescript)}, "1.2.3")


def test_a_resource_is_read_from_its_bindings() -> None:
    assert _schema(RESOURCE)["resources"]["google_thing"] == {
        "attributes": {
            "purpose": {"type": "string", "optional": True, "values": ["WORK", "PLAY"]},
            "names": {"type": ["set", "string"], "computed": True, "optional": True},
            "labels": {"type": ["map", "string"], "optional": True},
            "code_wo": {"type": "string", "optional": True, "write_only": True},
            "seen": {"type": ["list", ["object", {"at": "string"}]], "computed": True},
        },
        "blocks": {
            "part": {
                "nesting": "list",
                "max": 1,
                "min": 1,
                "block": {"attributes": {"size": {"type": "number", "required": True}}, "blocks": {}},
            }
        },
    }


UNKNOWN_FORMS = [
    (
        "a getter of another kind",
        "this.getNumberAttribute('size')",
        "this.fetch('size')",
        "size is read in an unknown way",
    ),
    (
        "flags that are missing",
        "  // purpose - computed: false",
        "  // purpose: computed: false",
        "without flags: purpose",
    ),
    ("an argument that is not written", "      labels: {", "      label: {", "without flags: label"),
    ("an entry with another line", '        type: "map",\n', '        shape: "map",\n', "has an unknown form"),
    (
        "a list here and a set there",
        "cdktn.Fn.tolist(this.getListAttribute('names'))",
        "this.getListAttribute('names')",
        "names is",
    ),
    (
        "a block without its class",
        "class ThingPartOutputReference",
        "class ThingPieceOutputReference",
        "no class for ThingPart",
    ),
    (
        "two resources",
        "class ThingSeenOutputReference extends cdktn.ComplexObject",
        "class X extends cdktn.TerraformResource",
        "2 cl",
    ),
    (
        "a block that is a value",
        'new ThingPartOutputReference(this, "part")',
        "this.getStringAttribute('part')",
        "a value there",
    ),
]


@pytest.mark.parametrize(("old", "new", "said"), [it[1:] for it in UNKNOWN_FORMS], ids=[it[0] for it in UNKNOWN_FORMS])
def test_unknown_form_is_refused_instead_of_guessed(old: str, new: str, said: str) -> None:
    assert old in RESOURCE
    with pytest.raises(UnknownForm, match=said):
        _schema(RESOURCE.replace(old, new))


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("provider", "provider"),
        ("google_cloud_tasks_queue", "cloud-tasks-queue"),
        ("data.google_project", "data-google-project"),
    ],
)
def test_a_type_has_its_module(name: str, module: str) -> None:
    assert module_of(name) == module


def test_the_types_are_those_that_the_files_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "main.tf").write_text(
        'resource "google_x" "a" {}\ndata "google_y" "b" {}\n# resource "google_z" "c"\n'
    )
    assert types_in(tmp_path) == ["provider", "data.google_y", "google_x"]


@pytest.fixture(scope="module")
def schema(toolchain: Toolchain) -> Any:
    """The true provider's."""
    path = next(word for word in toolchain.program.read_text().split() if "schema-" in word)
    return json.loads(Path(path).read_text())


def test_schema_matches_the_providers_documentation(schema: Any) -> None:
    """Facts that anybody can look up: https://registry.terraform.io/providers/hashicorp/google/latest/docs."""
    resources = schema["resources"]
    queue = resources["google_cloud_tasks_queue"]
    service = resources["google_cloud_run_v2_service"]
    ttl = resources["google_firestore_field"]["blocks"]["ttl_config"]
    assert schema["version"] == "8.7.0"
    assert queue["attributes"]["location"] == {"type": "string", "required": True}
    assert queue["blocks"]["retry_config"]["block"]["attributes"]["max_attempts"]["type"] == "number"
    assert "INGRESS_TRAFFIC_INTERNAL_ONLY" in service["attributes"]["ingress"]["values"]
    assert service["blocks"]["template"]["min"] == service["blocks"]["template"]["max"] == 1
    assert service["blocks"]["template"]["block"]["blocks"]["containers"]["block"]["blocks"]["env"]["nesting"] == "set"
    assert ttl["max"] == 1
    assert ttl["block"]["attributes"]["state"] == {"type": "string", "computed": True}
    assert resources["google_secret_manager_secret_version"]["attributes"]["secret_data_wo"]["write_only"]
    assert schema["provider"]["attributes"]["user_project_override"] == {"type": "bool", "optional": True}


def test_replacing_arguments_of_each_resource_are_known(schema: Any) -> None:
    immutable = json.loads((HERE / "immutable.json").read_text())
    for name in set(schema["resources"]):
        assert name in immutable, f"{name} is used: say in immutable.json which arguments replace it (ForceNew)"
        for path in set(immutable[name]) - {"*"}:
            block = schema["resources"][name]
            *blocks, last = path.split(".")
            for part in blocks:
                block = block["blocks"][part]["block"]
            assert last in block["attributes"] or last in block["blocks"], f"{name} has no {path}"


UNKNOWN = object()
BLOCK: dict[str, Any] = {
    "attributes": {
        "name": {"type": "string", "required": True},
        "mode": {"type": "string", "optional": True, "values": ["A", "B"]},
        "url": {"type": "string", "computed": True},
        "project": {"type": "string", "optional": True, "computed": True},
        "code_wo": {"type": "string", "optional": True, "write_only": True},
    },
    "blocks": {
        "part": {
            "nesting": "list",
            "block": {"attributes": {"mode": {"type": "string", "optional": True, "values": ["A"]}}, "blocks": {}},
        }
    },
}


def _is_unknown(value: Any) -> bool:
    return value is UNKNOWN


def _refused(**value: Any) -> list[behaviour.Refusal]:
    return list(behaviour.refusals(BLOCK, value, _is_unknown))


def test_a_value_that_is_not_allowed_is_refused_where_it_is() -> None:
    (refusal,) = _refused(name="x", part=[{"mode": "A"}, {"mode": "B"}])
    assert refusal == behaviour.Refusal(("part", 1, "mode"), "expected mode to be one of A, got B")


def test_provider_only_attribute_is_refused() -> None:
    (refusal,) = _refused(name="x", url="https://example.com")
    assert refusal.sentence == "url is decided by the provider: it cannot be set."


def test_unknown_value_is_accepted() -> None:
    assert _refused(name="x", mode=UNKNOWN, part=UNKNOWN) == []


def test_new_resource_has_unknown_computed_values_and_provider_defaults() -> None:
    proposed = {"name": "x", "mode": None, "url": None, "project": None, "code_wo": "s", "part": [{"mode": None}]}
    plan = behaviour.planned(BLOCK, proposed, None, UNKNOWN, _is_unknown, {"project": "p"})
    assert plan == {**proposed, "url": UNKNOWN, "project": "p", "code_wo": None}


def test_an_apply_invents_what_was_unknown_and_nothing_else() -> None:
    value = {"name": "x", "mode": None, "url": UNKNOWN, "project": "p", "code_wo": None, "part": []}
    settled = behaviour.settled(BLOCK, value, "thing", _is_unknown, {})
    assert settled == {**value, "url": "invented-thing-url"}


def test_read_returns_given_values_and_invents_the_rest() -> None:
    value = {"name": "x", "mode": None, "url": None, "project": None, "code_wo": None, "part": []}
    settled = behaviour.settled(BLOCK, value, "thing", _is_unknown, {"project": "p"}, fill=True)
    assert (settled["url"], settled["project"], settled["mode"]) == ("invented-thing-url", "p", None)


@pytest.mark.parametrize(
    ("immutable", "replaced"),
    [({"name"}, ["name"]), ({"project"}, []), ({"part.mode"}, ["part"]), ({"*"}, ["name", "part"]), (set(), [])],
)
def test_change_of_an_immutable_argument_replaces_the_resource(immutable: set[str], replaced: list[str]) -> None:
    prior = {"name": "x", "project": "p", "part": [{"mode": "A"}]}
    plan = {"name": "y", "project": "p", "part": [{"mode": "B"}]}
    assert behaviour.replaced(frozenset(immutable), prior, plan, _is_unknown) == replaced
    assert behaviour.replaced(frozenset(immutable), prior, prior, _is_unknown) == []
    assert behaviour.replaced(frozenset(immutable), None, plan, _is_unknown) == []


def test_terraform_can_start_the_stand_in_itself(toolchain: Toolchain, tmp_path: Path) -> None:
    alone = Workspace(replace(toolchain, attached=""), tmp_path / "copy")
    alone.validate("bootstrap")
    assert (alone.folder / "bootstrap" / ".terraform.lock.hcl").exists(), "it was installed"


def test_stand_in_refuses_to_run_by_hand(toolchain: Toolchain) -> None:
    done = subprocess.run([toolchain.program], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr.strip()) == (1, "This is a provider: Terraform starts it.")


def test_repeated_setup_leaves_existing_files_unchanged(toolchain: Toolchain) -> None:
    """Another process's tests may have Terraform read it at this very moment."""
    files = [path for path in toolchain.config.parent.rglob("*") if path.is_file()]
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}
    assert set_up(toolchain.config.parents[1], types_in(TERRAFORM)).config == toolchain.config
    again = [path for path in toolchain.config.parent.rglob("*") if path.is_file()]
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in again} == before


def test_missing_terraform_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="terraform is not installed"):
        toolchain.set_up(tmp_path / "cache", ["provider"])


def test_a_download_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "HERE", tmp_path)
    (tmp_path / "bindings.lock").write_text("cdktn-provider-google==21.1.0 --hash=sha256:" + "0" * 64 + "\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(Unavailable, match=r"pip download of .* failed"):
        toolchain._bindings(tmp_path / "cache")
    assert not list(tmp_path.glob("cache/*"))


def test_terraform_settings_of_the_user_are_ignored(toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_VAR_project", "theirs")
    monkeypatch.setenv("TF_CLI_ARGS", "-help")
    ours = {name for name in toolchain.environment() if name.startswith("TF_")}
    assert ours == {"TF_CLI_CONFIG_FILE", "TF_DISABLE_PLUGIN_TLS", "TF_IN_AUTOMATION", "TF_REATTACH_PROVIDERS"}


def test_ci_fails_where_a_laptop_skips(tmp_path: Path, run_one_with: Callable[..., str]) -> None:
    assert "1 error" in run_one_with(CI="true", PATH=str(tmp_path))
    assert "1 skipped" in run_one_with(CI="", PATH=str(tmp_path))


@pytest.fixture
def run_one_with() -> Callable[..., str]:
    """Runs one of these tests in an environment of its own, and gives what pytest printed."""

    def run(**environ: str) -> str:
        name = "test_every_file_is_formatted"
        words = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            name,
            "tests/infra/test_terraform.py",
        ]
        done = subprocess.run(words, cwd=TERRAFORM.parents[1], env=environ, capture_output=True, text=True, timeout=60)
        return done.stdout

    return run
