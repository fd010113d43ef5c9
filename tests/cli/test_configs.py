import json

from click.testing import CliRunner

from trirow.main import main
from trirow_hw.config import PRESETS


def test_table():
    result = CliRunner().invoke(main, ["configs"])
    assert result.exit_code == 0
    assert result.stderr == ""
    for config in PRESETS.values():
        assert config.name in result.stdout
        assert config.description in result.stdout
    for part in ("8 x 16", "128 KiB", "4.5 KiB", "512 bits", "6144"):
        assert part in result.stdout
    assert "…" not in result.stdout


def test_json(tmp_path):
    path = tmp_path / "configs.json"
    result = CliRunner().invoke(main, ["configs", "--json", str(path)])
    assert result.exit_code == 0
    content = json.loads(path.read_text())
    assert [entry["name"] for entry in content["configs"]] == list(PRESETS)
    tiny = content["configs"][0]
    assert tiny == {
        "name": "tiny",
        "in_lanes": 4,
        "out_lanes": 4,
        "post_lanes": 1,
        "line_buffer_bytes": 3072,
        "weight_buffer_bytes": 4096,
        "bus_bytes": 4,
        "weight_bits": 8,
        "requantise_modes": ["float32", "fixed"],
        "multipliers": 16,
        "for": "tests",
    }


def test_bad_usage(tmp_path):
    for arguments in (["--json", str(tmp_path)], ["--json", "/none/x"], ["x"], ["--x"]):
        result = CliRunner().invoke(main, ["configs", *arguments])
        assert (result.exit_code, result.stdout) == (2, "")
        assert len(result.stderr.splitlines()) == 1


def test_help():
    result = CliRunner().invoke(main, ["configs", "--help"])
    assert result.exit_code == 0
    assert "multipliers" in result.stdout
