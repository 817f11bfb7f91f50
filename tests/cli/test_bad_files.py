"""Files that hold what no reader takes: one clear line each, exit status 2, never a traceback."""

from __future__ import annotations

import pytest

from groundwatch.cli import main

DEEP = b"[" * 200_000
FILES = {
    "deep": b'{"id":"a","model":"m","answer":' + DEEP + b"\n",
    "deep keys": b'{"a":' * 100_000 + b"\n",
    "bytes": b'{"id":"\xff\xfe","model":"m","answer":"x"}\n',
    "nul": b"\x00\x00\x00",
    "parquet": b"PAR1" + bytes(20) + b"PAR1",
    "table": b'id,model,answer,images\n1,m,"x\n',
    "digits": b'{"id":"a","model":"m","answer":"x","recorded_at":' + b"9" * 5_000 + b"}\n",
    "infinite": b'{"id":"a","model":"m","answer":"x","recorded_at":1e999}\n',
}
COMMANDS = (
    "score faithscore FILE",
    "score faithscore FILE --recorded",
    "score pope FILE --recorded",
    "score chair FILE --recorded",
    "score tri-he FILE --recorded",
    "score vlm2 FILE --recorded",
    "score valor FILE --recorded --subset object-existence",
    "score genception FILE --recorded --t 3",
    "validate annotators FILE",
    "validate claims FILE --judge noop",
    "score tri-he FILE --recorded --share 0.2",
    "admin config check FILE",
    "report --config FILE",
    "replay start --run r --models FILE --dry-run",
    "up --models FILE",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_nobody_can_read_is_one_line(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GROUNDWATCH_DATA_DIR", str(tmp_path / "data"))
    paths = {name: tmp_path / f"{name}.json" for name in FILES}
    for name, path in paths.items():
        path.write_bytes(FILES[name])
    named = [*map(str, paths.values()), str(tmp_path), f"{tmp_path}/a\x00b", str(tmp_path / "none")]
    for path in named:
        arguments = [path if one == "FILE" else one for one in command.split()]
        monkeypatch.setattr("sys.argv", ["groundwatch", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        assert ended.value.code == 2, (path, told.err)
        assert told.err.startswith("groundwatch: "), (path, told.err)
        assert told.err.count("\n") == 1, (path, told.err)
        assert len(told.err) < 1_000


def test_a_folder_that_no_file_system_can_hold_is_one_line(tmp_path, monkeypatch, capsys):
    path = tmp_path / "settings.toml"
    path.write_text(f'data_dir = "{"x" * 5_000}"\n')
    for command in (f"admin config check {path}", f"up --config {path}"):
        monkeypatch.setattr("sys.argv", ["groundwatch", *command.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        assert ended.value.code == 2, told.err
        assert told.err.startswith("groundwatch: "), told.err
        assert "File name too long" in told.err
        assert told.err.count("\n") == 1
