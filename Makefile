# `make run` opens the demo and `make test` runs the tests, both from a fresh clone. They first install what is missing.
# For POSIX sh and any GNU make since 3.81, which macOS has.

VENV = .venv
PYTHON = $(VENV)/bin/python -P
READY = $(VENV)/.ready
AGENTS = .cache/agents
AGENTS_READY = $(AGENTS)/.ready
MORE_AGENTS = .cache/more-agents
SANDBOX_TESTS = $(shell grep -rlE 'mark\.(sandboxes|core)' tests --include '*.py' | sort)
WEB_TESTS = $(shell grep -rl 'mark\.web' tests --include '*.py' | sort)
# The marks of tests that have a target of their own, but `story`.
ELSEWHERE = agents or emulated or faults or more_agents or nightly or sandboxes or tiers or web
STORY_TESTS = $(shell grep -rl 'mark\.story' tests --include '*.py' | sort)
FAULT_TESTS = $(shell grep -rl 'mark\.faults' tests --include '*.py' | sort)
GIT = .cache/git
GIT_TESTS = tests/repository tests/supervisor/finish tests/supervisor/review tests/supervisor/worktrees tests/cli/worktree
LIVE_STATES = tests/agents/terminal/test_evidence.py

# sh: `get NAME` installs a system package if that needs no password; $line is the command for a person to run. The lists of
# packages are fetched once an hour.
GET = get() { \
	if command -v apt-get >/dev/null; then install="apt-get install -y $$1"; \
	elif command -v dnf >/dev/null; then install="dnf install -y $$1"; \
	elif command -v pacman >/dev/null; then install="pacman -S --noconfirm $$1"; \
	elif command -v brew >/dev/null; then install="brew install $$1"; \
	else line="install $$1"; return 1; fi; \
	as= line=$$install; \
	case $$install in \
	brew*) ;; \
	*) if [ "$$(id -u)" != 0 ]; then as="sudo -n" line="sudo $$install"; fi ;; \
	esac; \
	if [ -n "$$as" ]; then $$as true 2>/dev/null || return 1; fi; \
	echo "Installing $$1: $$line"; \
	case $$install in apt-get*) [ "$$(find .cache/apt-updated -mmin -60 2>/dev/null)" ] || \
		{ $$as apt-get update -qq && mkdir -p .cache && touch .cache/apt-updated; } || true ;; esac; \
	$$as env DEBIAN_FRONTEND=noninteractive $$install </dev/null >/dev/null; \
	}

# sh: `python_with MODULE` prints the first Python >= 3.11 that has this module.
PYTHON_WITH = python_with() { \
	wanted=$$1; \
	if [ -n "$$KASMON_PYTHON" ]; then set -- "$$KASMON_PYTHON"; \
	else set -- python3.11 python3.12 python3.13 python3.14 python3; fi; \
	for python in "$$@"; do \
		if "$$python" -c "import sys, $$wanted; sys.exit(sys.version_info < (3, 11))" >/dev/null 2>&1; \
		then echo "$$python"; return; fi; \
	done; \
	return 1; \
	}

# sh: `tests FOLDER ROUNDS ARGUMENT...` runs pytest with its cache in .cache/FOLDER. If at most ten tests fail, it runs each
# of them again alone, once for each word of ROUNDS: the tests start hundreds of processes, and the machine may be shared.
# The pictures of tests that do not run again are no error.
TESTS = tests() { \
	cache=.cache/$$1 rounds=$$2 failed=.cache/$$1/v/cache/lastfailed; shift 2; rm -f "$$failed"; \
	$(PYTHON) -m pytest -o "cache_dir=$$cache" "$$@"; first=$$?; \
	if [ $$first != 1 ] || [ "$$(grep -c :: "$$failed")" -gt 10 ]; then return $$first; fi; \
	cp "$$failed" "$$cache/failed"; \
	for round in $$rounds; do \
		cp "$$cache/failed" "$$failed"; \
		KASMON_EVIDENCE=anew $(PYTHON) -m pytest -o "cache_dir=$$cache" "$$@" -n 0 --workers 0 --snapshot-warn-unused \
			--last-failed --last-failed-no-failures=none || return; \
	done; \
	echo "Failed in parallel with other tests, and passed alone in each of the rounds $$rounds:"; grep :: "$$cache/failed"; \
	}

.PHONY: run test test-stories nightly test-nightly test-install test-install-short chaos agents test-agents test-agents-short test-agents-in-machines test-states \
	more-agents test-more-agents \
	test-sandboxes test-sandboxes-short test-interpreters test-web test-faults test-git check bench confusion record-screens \
	screenshots pages lock tmux sshd old-nats-server shells jail browser machine git clean
.NOTPARALLEL:

run: $(READY) tmux
	@if [ -t 0 ] && [ -t 1 ]; then $(VENV)/bin/kasmon demo; else $(VENV)/bin/kasmon demo --headless 5; fi

# Changed modules are compiled first: the tests start hundreds of processes.
test: $(READY) tmux shells
	@$(PYTHON) -m compileall -q kasmon
	@$(TESTS); export PYTHONDONTWRITEBYTECODE=; tests pytest '1 2 3' --workers 5

# What takes seconds a test: several hosts, machines or servers, from end to end. `.ci/run` runs them for each change.
test-stories: $(READY) tmux shells
	@$(PYTHON) -m compileall -q kasmon
	@$(TESTS); export PYTHONDONTWRITEBYTECODE=; tests stories-pytest '1 2 3' --workers 8 \
		-m 'story and not ($(ELSEWHERE))' $(STORY_TESTS)

# All that `.ci/run` leaves out, because it takes hours. The workflow `nightly` runs the same.
NIGHTLY = test-nightly test-install test-faults test-agents test-more-agents test-agents-in-machines test-sandboxes test-interpreters test-git chaos bench
nightly: $(NIGHTLY)

# The wheel and the sdist in clean environments: with each Python of this machine, every extra, uv and pipx; for `.ci/run` the
# wheel alone with one Python. KASMON_PYTHONS names others.
KASMON_PYTHONS ?= python3.11 python3.12 python3.13 python3.14
test-install: $(READY)
	@tests/support/install_wheel $(KASMON_PYTHONS)
test-install-short: $(READY)
	@EXTRAS=0 TOOLS=0 tests/support/install_wheel $(CURDIR)/$(VENV)/bin/python

# What `make test` leaves out, because a shorter test shows it too; and the tests of properties with many examples.
test-nightly: $(READY) tmux
	@$(TESTS); tests nightly-pytest '1 2' --workers 5 --hypothesis-profile nightly -m 'nightly or hypothesis'

# `.ci/run` runs one story of each agent, and the core of the sandboxes.
test-agents-short test-sandboxes-short: ONLY = $() and short
test-agents-short: test-agents

# Real agents against a model server on loopback; KASMON_REQUIRE_AGENTS names the required ones. Three run at a time: they
# often wait.
test-agents: $(READY) tmux $(if $(KASMON_AGENT_BIN_DIR),,agents)
	@$(TESTS); export KASMON_REQUIRE_AGENTS="$${KASMON_REQUIRE_AGENTS-claude,codex}"; \
	tests agents-pytest '1 2' -n 3 --dist worksteal -m 'agents$(ONLY)' -o timeout=180 --ignore=$(LIVE_STATES) tests/agents

# The same agents in tmux, state by state. Then a table compares the detected states with the real ones; it fails on a wrong
# state without doubt.
test-states: $(READY) tmux $(if $(KASMON_AGENT_BIN_DIR),,agents)
	@rm -rf .cache/evidence
	@$(TESTS); status=0; export KASMON_REQUIRE_AGENTS="$${KASMON_REQUIRE_AGENTS-claude,codex}"; \
	tests states-pytest 1 -n 3 --dist worksteal -m agents $(LIVE_STATES) || status=$$?; \
	$(PYTHON) -m tests.support.detection.confusion_matrix golden live || status=$$?; \
	exit $$status

# More real agents, which no change waits for: a turn over the Agent Client Protocol, and their states in tmux. Then the table.
test-more-agents: $(READY) tmux $(if $(KASMON_AGENT_BIN_DIR),,more-agents)
	@rm -rf .cache/more-evidence
	@$(TESTS); tests more-agents-pytest 1 -n 2 --dist worksteal -m more_agents -o timeout=300 tests/agents/more
	@$(PYTHON) -m tests.support.agents.live_run

# Real agents in virtual machines. Without KVM the machine emulates a processor, which takes minutes.
test-agents-in-machines: $(READY) tmux machine $(if $(KASMON_AGENT_BIN_DIR),,agents)
	@$(PYTHON) -m pytest -m emulated tests/agents

agents: $(AGENTS_READY)
more-agents: $(MORE_AGENTS)/.ready

# Drives the pinned agents through their states against the model server, and stores their screens next to the old ones.
# `make record-screens DIFF=--diff` also prints which of the new screens are read otherwise than before. `MORE=1`
# drives those of `make more-agents`.
record-screens: $(READY) tmux $(if $(MORE),more-agents,agents)
	$(PYTHON) -m tests.support.detection.record $(if $(MORE),--more) $(DIFF)

# Compares the detected state of each recorded screen, and of the last live runs, with the real one, as `test-states`.
confusion: $(READY)
	@$(PYTHON) -m tests.support.detection.confusion_matrix golden $(if $(wildcard .cache/evidence/*.json),live)

# Real sandboxes. Tests of a tier that this machine does not support are skipped with the reason, unless
# KASMON_REQUIRE_SANDBOXES names that tier.
test-sandboxes: machine
test-sandboxes test-sandboxes-short: $(READY) tmux jail
	@$(TESTS); tests sandboxes-pytest '1 2 3' -n 3 -m 'sandboxes$(ONLY)' $(SANDBOX_TESTS)

# All tests of interpreters, in every tier; `test-sandboxes` runs the core of them.
test-interpreters: $(READY) jail machine
	@$(PYTHON) -m pytest -n 3 -m tiers tests/sandbox/guest

# Fifty agents and random faults for CHAOS_S seconds; then the ten promises are checked. SEED repeats a run.
CHAOS_S = 300
chaos: $(READY) tmux
	@PYTHONPATH=. $(PYTHON) -m tests.chaos --seconds $(CHAOS_S) $(if $(SEED),--seed $(SEED))

# Servers, machines and runners that are killed again and again under load.
test-faults: $(READY) tmux
	@$(TESTS); tests faults-pytest '1 2' -n 1 -m faults $(FAULT_TESTS)

# The dashboard in a real browser without a window; skipped without a browser, unless KASMON_REQUIRE_WEB is set.
test-web: $(READY) tmux browser
	@$(PYTHON) -m pytest -m web $(WEB_TESTS)

# The tests of worktrees, finishing and review with a newer git than an old system has.
test-git: $(READY) tmux git
	@$(TESTS); export PATH="$(CURDIR)/$(GIT)/bin:$$PATH"; git version; tests git-pytest 1 -n 3 -m 'not ($(ELSEWHERE))' $(GIT_TESTS)

check: $(READY)
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy --strict
	$(VENV)/bin/lint-imports --no-cache --no-logo

bench: $(READY) tmux
	@$(VENV)/bin/kasmon bench

screenshots: $(READY)
	$(PYTHON) -m tests.support.screenshots

# Writes the tables of keys, commands and settings in docs/.
pages: $(READY)
	$(PYTHON) -m tests.support.reference_pages
	$(PYTHON) -m tests.support.interface_dump

# Resolves pyproject.toml again, in a temporary environment.
lock: $(READY)
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && \
	$(PYTHON) -m venv "$$scratch" && \
	"$$scratch/bin/python" -m pip install --quiet --disable-pip-version-check --no-binary claude-agent-sdk '.[dev]' && \
	"$$scratch/bin/python" -m pip freeze --exclude kasmon >"$$scratch/frozen" && \
	{ sed -n '/^#/p; /^--/p' requirements.lock; cat "$$scratch/frozen"; } >"$$scratch/lock" && \
	cp "$$scratch/lock" requirements.lock

# The environment: created once, and again when its requirements change or its Python is missing. Compiled like an
# installed package: with PYTHONDONTWRITEBYTECODE each start of kasmon would compile it again.
$(shell test -x $(VENV)/bin/python || rm -f $(READY))
$(READY): pyproject.toml requirements.lock
	@$(GET); $(PYTHON_WITH); \
	if ! $(VENV)/bin/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		python=$$(python_with ensurepip) || \
		{ python_with venv >/dev/null && get python3-venv && python=$$(python_with ensurepip); } || \
		{ echo "kasmon needs Python 3.11 or newer with venv; set KASMON_PYTHON to one." >&2; exit 1; }; \
		echo "Making $(VENV) with $$python; this takes a minute, once."; \
		"$$python" -m venv --clear $(VENV); \
	fi
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@$(PYTHON) -m compileall -q kasmon
	@touch $(READY)

# The agents that tests drive: installed once, and again when a pin changes or they are missing.
$(shell test -d $(AGENTS)/node_modules || rm -f $(AGENTS_READY))
$(AGENTS_READY): tests/agents/package.json tests/agents/package-lock.json tests/agents/install
	@command -v npm >/dev/null || { $(GET); get npm; } || { \
		echo "npm is missing: it installs the agents that these tests drive ($$line; node 20 or newer)." >&2; exit 1; }
	@echo "Installing the agents into $(AGENTS); this takes a minute, once."
	@tests/agents/install $(AGENTS)

$(MORE_AGENTS)/.ready: $(addprefix tests/agents/more/, package.json package-lock.json requirements.txt install)
	@echo "Installing more agents into $(MORE_AGENTS); this takes some minutes, once."
	@tests/agents/more/install $(MORE_AGENTS)

tmux:
	@command -v "$${KASMON_TMUX:-tmux}" >/dev/null || { $(GET); get tmux; } || \
	echo "tmux is missing: live terminals need it ($$line); structured sessions work without."

# The tests of other machines start their own sshd on loopback, and are skipped without sshd. `make test` does not install
# it: the package starts a service that listens. Run this target on a machine that is for tests only.
sshd:
	@PATH="$$PATH:$${SBIN-/usr/local/sbin:/usr/sbin:/sbin}"; \
	command -v sshd >/dev/null || { $(GET); get openssh-server; } || { \
		echo "sshd is missing: the tests of other machines need it ($$line)." >&2; exit 1; }

# A nats-server that is too old for a cluster, for the test that it is refused: Debian's, only extracted, because its
# package starts a service that admits everyone. The test is skipped without it.
OLD_NATS = .cache/nats-server
old-nats-server:
	@[ -x $(OLD_NATS)/usr/sbin/nats-server ] || ! command -v apt-get >/dev/null || { \
		mkdir -p $(OLD_NATS) && cd $(OLD_NATS) && apt-get download -qq nats-server >/dev/null && \
		for each in nats-server_*.deb; do dpkg -x "$$each" .; done; } || \
	echo "An older nats-server is not available: its test is skipped (apt-get download nats-server)."

# The shells whose completion and exit codes are tested; tests of a missing shell are skipped.
shells:
	@$(GET); for each in zsh fish; do command -v "$$each" >/dev/null || get "$$each" || \
		echo "$$each is missing: its completion is not tested ($$line)."; done

browser:
	@$(GET); for each in chromium chromium-browser google-chrome; do \
		if command -v "$$each" >/dev/null; then exit 0; fi; done; \
	get chromium || echo "chromium is missing: the web view is not tested in a browser ($$line)."

# The programs that jails and their tests need. Jails exist on Linux only.
jail:
	@[ "$$(uname)" = Linux ] || exit 0; $(GET); \
	for each in bwrap:bubblewrap git:git /usr/bin/python3:python3 node:nodejs; do \
		command -v "$${each%:*}" >/dev/null || get "$${each#*:}" || \
		echo "$${each%:*} is missing: the tests of sandboxes need it ($$line)."; \
	done

# The programs that virtual machines and their tests need, and their image: Debian packages, built once, in .cache.
# On other systems than Debian's the tests of machines are skipped with the reason.
machine: $(READY)
	@[ "$$(uname)" = Linux ] && command -v apt-get >/dev/null || exit 0; $(GET); \
	for each in qemu-system-x86_64:qemu-system-x86 qemu-img:qemu-utils mke2fs:e2fsprogs lz4:lz4; do \
		command -v "$${each%:*}" >/dev/null || get "$${each#*:}" || \
		echo "$${each%:*} is missing: the tests of virtual machines need it ($$line)."; \
	done; \
	$(PYTHON) -m tests.support.sandbox.machine_image

# git 2.45 or newer: the system's, else one that is built once in .cache, which changes nothing of the system.
git:
	@newer() { "$$1" version 2>/dev/null | awk '{ split($$3, v, "."); new = v[1] > 2 || v[2] >= 45 } END { exit !new }'; }; \
	if newer git || newer $(GIT)/bin/git; then exit 0; fi; $(GET); \
	command -v gcc >/dev/null || get gcc || true; \
	[ -e /usr/include/zlib.h ] || get zlib1g-dev || true; \
	echo "Building a newer git into $(GIT); this takes some minutes, once."; tests/support/install_git $(GIT)

clean:
	rm -rf $(VENV) build dist .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache snapshot_report.html
	find kasmon tests -name __pycache__ -type d -prune -exec rm -rf {} +
