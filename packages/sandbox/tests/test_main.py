import os
import signal
import subprocess
import sys
from datetime import timedelta

import httpx
import pytest

from coatcheck_sandbox.__main__ import main, parse_duration


def test_the_command_serves_until_interrupted() -> None:
    """It prints its URL, has the faults and the key it was given, and ends cleanly on SIGTERM."""
    command = [
        sys.executable, "-m", "coatcheck_sandbox", "--without-ocr", "--delay", "2s", "--key", "k",
        "--fault", '{"kind": "answer", "status": 429}',
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        headers = {"Authorization": "Bearer k"}
        statuses = [httpx.get(f"{url}/gitee/v1/task/1", headers=headers).status_code for _ in range(2)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert statuses == [429, 404]


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("2s", 2), ("1.5m", 90), ("1h", 3600), (" 0s ", 0)]
)
def test_durations(text: str, seconds: float) -> None:
    """Each unit is understood."""
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "arguments", [["--delay", "2"], ["--delay", "fast"], ["--fault", "{"], ["--fault", '{"kind": "meteor"}']]
)
def test_wrong_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with 2 and says which argument is wrong."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    message = capsys.readouterr().err
    assert arguments[0] in message or arguments[1] in message or "meteor" in message
