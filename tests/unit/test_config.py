"""Settings: precedence and reported source of values, refused values; topics, levels and files of the log."""

import dataclasses
import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from webmm import config, log
from webmm.choose import tuned
from webmm.cli import main
from webmm.errors import ConfigError


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A working folder inside a project's folder, and a user's settings folder, without settings in the environment."""
    for name in [name for name in os.environ if name.startswith("WEBMM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(config.platformdirs, "user_config_dir", lambda name: str(tmp_path / "user"))
    for folder in ("user", "project/inner"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "inner")
    config._files.cache_clear()
    yield tmp_path
    config._files.cache_clear()


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    config._files.cache_clear()
    return path


def test_environment_over_project_over_user_over_default(here, monkeypatch):
    assert config.effective()["adapter"] == ("", "")
    user = write(here / "user" / "webmm.toml", 'adapter = "u"\nnaga = "n"')
    assert config.effective()["adapter"] == ("u", str(user))
    outer = write(here / "project" / "pyproject.toml", '[project]\nname = "x"\n[tool.webmm]\nadapter = "p"')
    assert config.effective()["adapter"] == ("p", f"{outer} [tool.webmm]")
    inner = write(here / "project" / "inner" / "webmm.toml", "adapter = 1")
    assert config.effective()["adapter"] == ("1", str(inner))
    assert config.effective()["naga"] == ("n", str(user))
    monkeypatch.setenv("WEBMM_ADAPTER", "e")
    assert config.effective()["adapter"] == ("e", "WEBMM_ADAPTER")
    monkeypatch.setenv("WEBMM_ADAPTER", "")
    assert config.settings().adapter == "1"


def test_one_setting_is_read_without_the_others(here, monkeypatch):
    write(here / "user" / "webmm.toml", 'cache_dir = "kept"\ntune_budget = 7\n')
    write(here / "project" / "webmm.toml", 'tune = "off"\n')
    monkeypatch.setenv("WEBMM_PRECISION", "high")
    every = config.settings()
    for field in dataclasses.fields(every):
        assert config.setting(field.name) == getattr(every, field.name)
    monkeypatch.setenv("WEBMM_TUNE", "fast")
    assert config.setting("cache_dir") == here / "user" / "kept"
    with pytest.raises(ConfigError, match="WEBMM_TUNE: tune must be"):
        config.setting("tune")


def test_webmm_toml_takes_precedence_over_pyproject_in_a_folder(here):
    write(here / "project" / "pyproject.toml", '[tool.webmm]\nadapter = "p"\nengine = "dawn"')
    write(here / "project" / "webmm.toml", 'adapter = "w"')
    assert (config.settings().adapter, config.settings().engine) == ("w", "wgpu")


OWN = "cache_dir = 'c'\nlog_file = 'l'\nprofile = 'p.json'\nnaga = 'n'\n"
NAMES = ["cache_dir", "log_file", "profile", "naga"]


@pytest.mark.parametrize(("name", "head"), [("webmm.toml", ""), ("pyproject.toml", "[tool.webmm]\n")])
def test_a_project_file_names_no_program_and_no_path(here, caplog, name, head):
    file = write(here / "project" / name, f"{head}{OWN}tune = 'off'")
    settings = [config.settings() for _ in range(3)]
    assert settings == 3 * [dataclasses.replace(config.Settings(), tune="off")]
    (message,) = caplog.messages
    assert message.startswith(f"{file}{' [tool.webmm]' * bool(head)}: {', '.join(NAMES)} ignored")
    variables = "WEBMM_CACHE_DIR, WEBMM_LOG_FILE, WEBMM_PROFILE, WEBMM_NAGA"
    for way in (here / "user" / "webmm.toml", variables, "webmm.config.set()"):
        assert str(way) in message
    rows = json.loads(CliRunner().invoke(main, ["config", "--json"]).stdout)
    assert {row["name"] for row in rows if row["ignored"].startswith(str(file))} == {*NAMES}
    assert f"naga is set in {file}" in CliRunner().invoke(main, ["config"]).stdout


def test_the_user_file_names_programs_and_paths_wherever_webmm_starts(here, monkeypatch, caplog):
    write(here / "user" / "webmm.toml", OWN)
    for folder in ("project", "user"):
        monkeypatch.chdir(here / folder)
        found = config.settings()
        assert (found.cache_dir, found.log_file, found.naga) == (here / "user" / "c", here / "user" / "l", "n")
        assert found.profile == here / "user" / "p.json"
    assert caplog.messages == []


def test_every_setting_with_a_path_is_the_users_own():
    fields = dataclasses.fields(config.Settings)
    assert {f.name for f in fields if "Path" in str(f.type)} <= {f.name for f in fields if f.metadata["own"]}


def test_paths_are_relative_to_the_file_that_sets_them(here, monkeypatch):
    write(here / "user" / "webmm.toml", 'cache_dir = "cache"')
    assert tuned.path() == here / "user" / "cache" / "tuned.json"
    monkeypatch.setenv("WEBMM_CACHE_DIR", "mine")
    assert tuned.folder() == here / "project" / "inner" / "mine"
    monkeypatch.setenv("WEBMM_CACHE_DIR", "~/mine")
    assert tuned.folder() == Path.home() / "mine"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("adaptor = 'x'", "unknown setting 'adaptor'; choose from adapter, "),
        ("adapter = true", "adapter must be text, not True"),
        ("log = 'shout'", "'shout' is neither a topic (compile, choice, tune, profile, host) nor a level"),
        ("log = [1]", "log must be text"),
        ("tune = 'on'", "tune must be off, cached, quick or auto, not 'on'"),
        ("selftest = 'maybe'", "selftest must be on or off, not 'maybe'"),
        ("tune_budget = 0", "tune_budget must be a number of seconds, at least 1, not 0"),
        ("tune_budget = 'long'", "tune_budget must be a number of seconds, at least 1, not 'long'"),
        ("tune_budget = nan", "must be a number of seconds"),
        ("x = ", "is not valid TOML"),
    ],
)
def test_errors_in_a_file_name_the_file(here, text, words):
    file = write(here / "project" / "webmm.toml", text)
    done = CliRunner().invoke(main, ["config"])
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert str(file) in line
    assert words in line


def test_errors_in_the_environment_name_the_variable(monkeypatch):
    monkeypatch.setenv("WEBMM_LOG", "choice,shout")
    with pytest.raises(ConfigError, match=r"^WEBMM_LOG: 'shout' is neither"):
        config.settings()


def test_files_without_settings_of_webmm_are_ignored(here):
    (here / "project" / "inner" / "webmm.toml").mkdir()
    write(here / "project" / "inner" / "pyproject.toml", "this is no TOML")
    assert config.settings() == config.Settings()
    write(here / "project" / "inner" / "pyproject.toml", '[project]\ndependencies = ["webmm"]')
    assert config.settings() == config.Settings()
    broken = write(here / "project" / "inner" / "pyproject.toml", "[tool.webmm")
    with pytest.raises(ConfigError, match=f"{broken} is not valid TOML"):
        config.settings()
    write(here / "project" / "inner" / "pyproject.toml", "tool.webmm = 1")
    with pytest.raises(ConfigError, match=r"\[tool.webmm\] is not a table"):
        config.settings()


@pytest.mark.parametrize(
    ("text", "on"), [("false", False), ("'off'", False), ("true", True), ("'on'", True), ("0", False)]
)
def test_boolean_settings(here, text, on):
    write(here / "project" / "webmm.toml", f"selftest = {text}")
    assert config.settings().selftest is on


def test_a_deleted_working_folder_has_no_settings(here):
    (here / "gone").mkdir()
    os.chdir(here / "gone")
    (here / "gone").rmdir()
    assert config.settings() == config.Settings()


def test_the_command_prints_values_and_sources(here, monkeypatch):
    file = write(here / "project" / "webmm.toml", 'adapter = "gpu"')
    monkeypatch.setenv("WEBMM_ADAPTOR", "x")
    done = CliRunner().invoke(main, ["config"])
    assert done.exit_code == 0
    rows = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert '"gpu"' in rows["adapter"]
    assert rows["adapter"].endswith(str(file))
    assert rows["log"].endswith("default")
    assert rows["WEBMM_ADAPTOR"] == "WEBMM_ADAPTOR is set in the environment, but is not a setting"
    data = json.loads(CliRunner().invoke(main, ["config", "--json"]).stdout)
    assert [row["name"] for row in data] == list(config.effective())
    assert data[0] == {
        "name": "adapter",
        "value": "gpu",
        "source": str(file),
        "variable": "WEBMM_ADAPTER",
        "ignored": "",
        "doc": config.Settings.__dataclass_fields__["adapter"].metadata["doc"],
    }


def test_importing_reads_no_file_and_shows_nothing(here):
    write(here / "project" / "inner" / "webmm.toml", "nonsense")
    code = "import logging, webmm; assert not logging.root.handlers + logging.getLogger('webmm').handlers"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.fixture
def loggers():
    """Restore the loggers' levels and handlers after the test."""
    every = [log.root, *(log.root.getChild(topic) for topic in log.TOPICS)]
    levels = [logger.level for logger in every]
    yield
    for logger, level in zip(every, levels, strict=True):
        logger.setLevel(level)
    log.root.handlers.clear()


@pytest.mark.usefixtures("loggers")
@pytest.mark.parametrize(
    ("what", "shown"),
    [
        ("", set()),
        ("choice", {"choice debug", "choice info"}),
        ("choice, tune", {"choice debug", "choice info", "tune debug", "tune info"}),
        ("INFO", {f"{topic} info" for topic in log.TOPICS}),
        ("info,tune", {"tune debug", *(f"{topic} info" for topic in log.TOPICS)}),
        ("debug", {f"{topic} {level}" for topic in log.TOPICS for level in ("debug", "info")}),
    ],
)
def test_topics_and_levels_select_messages(what, shown, caplog):
    log.show(what)
    for topic in log.TOPICS:
        for level in (logging.DEBUG, logging.INFO):
            log.root.getChild(topic).log(level, "%s %s", topic, logging.getLevelName(level).lower())
    assert set(caplog.messages) == shown


@pytest.mark.usefixtures("loggers")
def test_messages_go_to_existing_handlers_or_stderr(monkeypatch):
    log.show("info")
    assert not log.root.handlers  # pytest's handlers on the root logger are used
    monkeypatch.setattr(logging.root, "handlers", [])
    log.show("info")
    log.show("choice")
    assert [type(handler) for handler in log.root.handlers] == [logging.StreamHandler]
    assert logging.root.handlers == []


def test_every_setting_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text()
    table = page.split("| setting | default | values |")[1].split("\n\n")[0]
    assert [line.split("`")[1] for line in table.splitlines()[2:]] == list(config.effective())


@pytest.mark.usefixtures("loggers")
def test_a_topic_can_have_its_own_level(caplog):
    log.show("warning,tune=info,choice")
    for topic in log.TOPICS:
        for level in (logging.DEBUG, logging.INFO, logging.WARNING):
            log.root.getChild(topic).log(level, "%s %s", topic, logging.getLevelName(level).lower())
    shown = {"tune info", "choice debug", "choice info", *(f"{topic} warning" for topic in log.TOPICS)}
    assert set(caplog.messages) == shown
    for wrong in ("tune=loud", "tune=", "loud=info", "info=tune"):
        with pytest.raises(ConfigError, match="nor TOPIC=LEVEL"):
            log.show(wrong)


@pytest.mark.usefixtures("loggers")
def test_a_log_goes_to_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(logging.root, "handlers", [])
    for _ in range(2):
        log.show("choice=info", tmp_path / "webmm.log")
    log.choice.info("taken")
    log.choice.debug("why")
    (line,) = (tmp_path / "webmm.log").read_text().splitlines()
    assert line.endswith(" webmm.choice: taken")
    assert len(log.root.handlers) == 1
    log.root.handlers[0].close()
    with pytest.raises(ConfigError, match="cannot write the log to"):
        log.show("info", tmp_path / "nowhere" / "webmm.log")


@pytest.fixture
def chosen():
    yield config.set
    config._chosen.clear()


def test_config_set_overrides_every_other_source(chosen, monkeypatch, tmp_path):
    monkeypatch.setenv("WEBMM_TUNE", "auto")
    monkeypatch.chdir(tmp_path)
    chosen(tune="off", tune_budget=3, cache_dir="here")
    assert (config.settings().tune, config.settings().tune_budget) == ("off", 3.0)
    assert config.effective()["cache_dir"] == (tmp_path / "here", "webmm.config.set()")
    chosen(tune=None)
    assert config.effective()["tune"] == ("auto", "WEBMM_TUNE")
    for wrong in ({"tune": "always"}, {"tune": "off", "nope": 1}, {"tune_budget": "soon", "tune": "off"}):
        with pytest.raises(ConfigError, match=r"webmm\.config\.set\(\)"):
            chosen(**wrong)
        assert config.settings().tune == "auto"


@pytest.mark.usefixtures("loggers")
def test_config_set_applies_the_log_settings_at_once(chosen, tmp_path, monkeypatch):
    monkeypatch.setattr(logging.root, "handlers", [])
    chosen(log="choice=info", log_file=str(tmp_path / "a.log"))
    log.choice.info("taken")
    assert (tmp_path / "a.log").read_text().endswith("webmm.choice: taken\n")


def test_template_documents_every_setting_and_changes_none(here):
    text = config.template()
    settings = "\n".join(re.findall(r"^# (\w+ = .*)", text, re.MULTILINE))
    own = {field.name for field in dataclasses.fields(config.Settings) if field.metadata["own"]}
    for folder, ignored in (("", own), ("user", set())):
        file = write(here / folder / "webmm.toml", text)
        assert config.settings() == config.Settings()
        write(file, settings)
        assert config.settings() == config.Settings()
        assert {name for name, (_, source) in config.effective().items() if source != str(file)} == ignored
        file.unlink()
    blocks = text.split("\n\n")
    marked = {block.splitlines()[-1].split()[1] for block in blocks if f"takes effect in {config.user_file()}" in block}
    assert marked == own
    assert all(field.metadata["doc"] in text for field in config.Settings.__dataclass_fields__.values())


def test_config_write_does_not_overwrite_without_force(here):
    for arguments, file, code in (
        (["--write"], "webmm.toml", 0),
        (["--write"], "webmm.toml", 2),
        (["--write", "--force"], "webmm.toml", 0),
        (["--write", "other.toml"], "other.toml", 0),
    ):
        done = CliRunner().invoke(main, ["config", *arguments])
        assert done.exit_code == code, done.output
        assert (here / "project" / "inner" / file).read_text() == config.template()
