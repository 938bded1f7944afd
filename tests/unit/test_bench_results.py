"""Results on the disk: whole or not at all, read again, resumed, described by a schema."""

import json
import os
import resource
import stat
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

import orchestrator.bench
from orchestrator.errors import FileError, SparkDeployError, UsageError
from orchestrator.load.result import load_result, result_json, result_schema
from orchestrator.model.bench import Level, Result
from orchestrator.run.results import Folder, config_hash, find_result, kept_results
from tests.unit import bench_results
from tests.unit.bench_results import invalid_result, level_result, result

SCHEMA_FILE = Path(orchestrator.bench.__file__).parent / "result.schema.json"
REQUESTS = {
    name: [bench_results.requests(int(name), number)[:2] for number in range(3)] for name in ("1", "16")
}


def hash_of(found: Result) -> str:
    return config_hash(found.load, found.deployment, found.target.url)


def written(path: Path, found: Result | None = None) -> Folder:
    folder = Folder(path, lambda _: {"report.md": "# report\n"})
    folder.write(found or result(), REQUESTS)
    return folder


def check(folder: Folder, found: Result, *, resume: bool) -> None:
    folder.refuse_another(found.load, found.deployment, found.target.url, resume=resume)


def test_the_schema_file_is_that_of_the_code(golden):
    """It ships in the wheel, and `--update-golden` writes it anew."""
    text = json.dumps(result_schema(), indent=1) + "\n"

    golden(os.path.relpath(SCHEMA_FILE, Path(__file__).parent.parent / "golden"), text)


@pytest.mark.parametrize("found", [result(), invalid_result(), replace(result(), levels=(), verdict=None)])
def test_a_result_is_valid_by_its_schema(found):
    """Others read result.json, too."""
    schema = json.loads(SCHEMA_FILE.read_bytes())

    jsonschema.validate(json.loads(result_json(found)), schema)


def test_another_object_is_not_valid_by_the_schema():
    """A schema that takes everything would hold nothing."""
    schema = json.loads(SCHEMA_FILE.read_bytes())

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": "spark-deploy/bench/v1"}, schema)


def test_a_result_comes_back_as_it_was(tmp_path):
    """A baseline is an earlier run: not a digit may be lost."""
    folder = written(tmp_path / "out")

    assert load_result(folder.path) == load_result(folder.path / "result.json") == result()


def test_a_field_of_a_later_version_is_ignored(tmp_path):
    """Within v1 fields are only added."""
    written(tmp_path)
    about = json.loads((tmp_path / "result.json").read_bytes())
    (tmp_path / "result.json").write_text(json.dumps({**about, "moon": "full"}))

    assert load_result(tmp_path) == result()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is not JSON"),
        ("[1]", "is no result of `spark-deploy bench`"),
        ("[" * 100_000, "is not JSON"),
        ('{"schema": "spark-deploy/run/v1"}', "is no result of `spark-deploy bench`"),
        ('{"schema": "spark-deploy/bench/v2"}', "was written by a newer spark-deploy"),
        ('{"schema": "spark-deploy/bench/v1"}', "run_id is wrong"),
        ('{"schema": "spark-deploy/bench/v1", "run_id": "\udcff"}', "is not JSON"),
    ],
)
def test_what_is_no_result_is_told(tmp_path, content, says):
    """With the file and what is wrong with it, whatever lies there."""
    (tmp_path / "result.json").write_bytes(content.encode("utf-8", "surrogateescape"))

    with pytest.raises(FileError, match=says) as caught:
        load_result(tmp_path)

    assert caught.value.at == str(tmp_path / "result.json")


def test_no_result_is_told(tmp_path):
    """With the path that was looked at."""
    with pytest.raises(FileError, match=f"there is no result {tmp_path}/result.json"):
        load_result(tmp_path)


def test_everything_lies_in_the_folder_for_its_owner_alone(tmp_path):
    """Prompts are not in it, but a model's name and a node's are nobody else's business."""
    folder = written(tmp_path / "deep" / "out")
    folder.save_level(hash_of(result()), level_result(1), REQUESTS["1"])

    modes = {
        str(path.relative_to(folder.path)): stat.S_IMODE(path.stat().st_mode)
        for path in folder.path.rglob("*")
    }
    assert modes == {
        "result.json": 0o600,
        "requests.jsonl": 0o600,
        "report.md": 0o600,
        "levels": 0o700,
        "levels/1.json": 0o600,
    }


def test_every_request_has_its_line(tmp_path):
    """With level and repeat, so that a line says all by itself."""
    written(tmp_path)

    lines = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    assert [(line["level"], line["repeat"]) for line in lines[::2]] == [
        (level, repeat) for level in ("1", "16") for repeat in (1, 2, 3)
    ]
    assert lines[0]["arrivals_s"] == list(REQUESTS["1"][0][0].arrivals_s)


def test_other_files_in_the_folder_stay(tmp_path):
    """`--out .` is fine."""
    (tmp_path / "notes.txt").write_text("mine")

    written(tmp_path)

    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_full_disk_leaves_what_was_there(tmp_path):
    """Nothing is half-written: the old result is whole, and no temporary file is left."""
    folder = written(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(SparkDeployError, match="cannot be written") as caught:
            folder.write(invalid_result(), REQUESTS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert caught.value.found == "File too large"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    """Before an hour of measuring."""
    (tmp_path / "out").write_text("")

    with pytest.raises(UsageError, match="no results can be written"):
        check(Folder(tmp_path / "out"), result(), resume=False)


def test_a_result_is_not_overwritten_unasked(tmp_path):
    """It may be the baseline of tomorrow."""
    with pytest.raises(UsageError, match="holds a result already") as caught:
        check(written(tmp_path), result(), resume=False)

    assert "--resume" in caught.value.hint


def test_resume_says_what_differs(tmp_path):
    """Levels of two loads would stand in one table."""
    other = replace(result(), load=replace(result().load, output_tokens=100))

    with pytest.raises(UsageError, match="something else") as caught:
        check(written(tmp_path), other, resume=True)

    assert (caught.value.found, caught.value.wanted) == ("load.output_tokens 300", "load.output_tokens 100")


def test_resume_takes_a_result_of_the_same(tmp_path):
    """An interrupted sweep leaves one, too."""
    check(written(tmp_path, replace(result(), finished=False)), result(), resume=True)


@pytest.mark.parametrize("level", [Level(16), Level(rate=0.5)])
def test_a_whole_level_is_found_again(tmp_path, level):
    """With its requests: requests.jsonl of the resumed sweep has them all."""
    kept, requests = replace(level_result(16), level=level), tuple(map(tuple, REQUESTS["16"]))
    folder = Folder(tmp_path)
    folder.save_level(hash_of(result()), kept, requests)

    assert folder.saved_level(hash_of(result()), level) == (kept, requests)


@pytest.mark.parametrize("spoil", [lambda content: content[:-1], lambda _: b"", lambda _: b"\xff"])
def test_a_level_that_is_not_whole_is_none(tmp_path, spoil):
    """It is measured anew."""
    folder = Folder(tmp_path)
    folder.save_level(hash_of(result()), level_result(16), REQUESTS["16"])
    file = tmp_path / "levels" / "16.json"
    file.write_bytes(spoil(file.read_bytes()))

    assert folder.saved_level(hash_of(result()), Level(16)) is None


def test_a_level_of_another_configuration_is_none(tmp_path):
    """Another image, another seed, another URL: apples and pears."""
    found = result()
    folder = Folder(tmp_path)
    folder.save_level(hash_of(found), level_result(16), REQUESTS["16"])
    others = [
        replace(found, deployment=replace(found.deployment, image="other")),
        replace(found, load=replace(found.load, seed=1)),
        replace(found, target=replace(found.target, url="http://other")),
    ]

    assert [folder.saved_level(hash_of(other), Level(16)) for other in others] == [None] * 3
    assert Folder(tmp_path / "none").saved_level(hash_of(found), Level(16)) is None


def test_results_of_runs_are_found_the_newest_first(tmp_path):
    """By history, and by the id of a run; one that is broken does not hide the others."""
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    runs = tmp_path / "spark-deploy" / "runs"
    ids = [
        "20261130T210000-aaaaaa",
        "20261201T210000-bbbbbb",
        "20261202T210000-cccccc",
        "20261203T210000-dddddd",
    ]
    for run_id in ids[:2]:
        written(runs / run_id / "bench")
    (runs / ids[2]).mkdir()
    written(runs / ids[3] / "bench")
    (runs / ids[3] / "bench" / "result.json").write_text("{")

    found = {run.id: type(one) for run, one in kept_results(environ)}

    assert list(found.items()) == [(ids[3], FileError), (ids[1], Result), (ids[0], Result)]
    assert find_result(environ, "20261201") == find_result(environ, str(runs / ids[0] / "bench")) == result()
