# make serve   a durable stream server on http://127.0.0.1:4437
# make dev     three nodes on this machine that act as one server, until Ctrl-C
# make test    everything that must be green before a change goes in
# make faults  more rounds of kill -9, and the tests again with everything in the store and on three nodes
# make bench   what it costs, against other servers
#
# Nothing is installed outside this folder except missing Debian packages.

PYTHON ?= python3
ARGS ?=

PIP := .venv/bin/python -m pip install --disable-pip-version-check -q -c constraints.txt
NPM := npm install --no-audit --no-fund --no-package-lock --loglevel=error
PYTEST := .venv/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder
SPARK_FAULTS := $(addprefix tests/pipeline/,test_driver_killed.py long_driver_killed.py test_outages.py long_outages.py)
SPARK_FAULTS += tests/spark/long_three_nodes.py
TINY := tests/http tests/interop tests/client tests/terminal $(addprefix tests/faults/test_,$(addsuffix .py,kill kill_bucket stop disk cold_disk connections))
SPREAD := tests/http tests/client tests/interop tests/terminal
SPREAD_QUICK := $(addprefix tests/http/test_,$(addsuffix .py,create conditions forks json known_heads listing records undelete))
NODE_TESTS := $(addprefix tests/,client conformance interop)
PINS := pyproject.toml constraints.txt

# The tests start hundreds of processes: each reuses the bytecode that an earlier one has compiled.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.PHONY: install serve dev test lint faults bench node clean

install: .venv/install.stamp

serve: .venv/install.stamp
	@.venv/bin/ursula serve $(ARGS)

dev: .venv/cluster.stamp .venv/etcd.stamp
	@URSULA_CLUSTER__ETCD_PATH=.venv/etcd/usr/bin/etcd .venv/bin/ursula dev $(ARGS)

test: lint node .venv/etcd.stamp
	@scripts/debian-packages util-linux iproute2 chromium
	$(PYTEST) $(ARGS)
	URSULA_TEST_NODES=3 $(PYTEST) $(SPREAD_QUICK) $(ARGS)

lint: .venv/test.stamp
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy

faults: .venv/test.stamp node .venv/etcd.stamp
	@scripts/debian-packages util-linux iproute2 chromium
	URSULA_FAULT_ROUNDS=50 $(PYTEST) --timeout 1800 tests/faults tests/model/test_flush_model.py tests/model/test_log_model.py $(SPARK_FAULTS) $(ARGS)
	URSULA_TEST_COLD=tiny URSULA_FAULT_ROUNDS=10 $(PYTEST) $(TINY) $(ARGS)
	URSULA_TEST_NODES=3 $(PYTEST) --timeout 1800 $(SPREAD) $(ARGS)

bench: .venv/bench.stamp .venv/etcd.stamp bench/node_modules/install.stamp
	@scripts/debian-packages wrk
	.venv/bin/python -m bench $(ARGS)

node: $(addsuffix /node_modules/install.stamp,$(NODE_TESTS))

clean:
	rm -rf .venv $(addsuffix /node_modules,$(NODE_TESTS) bench)
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than the files it was made from, so nothing is installed twice and a second start needs no network.

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "Python 3.11 or newer is needed as '$(PYTHON)'; name another one: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || scripts/debian-packages python3-venv
	$(PYTHON) -m venv .venv

.venv/install.stamp: $(PINS) | .venv/bin/python
	$(PIP) -e .
	@touch $@

.venv/cluster.stamp: .venv/install.stamp
	$(PIP) -e '.[cluster]'
	@touch $@

.venv/test.stamp: .venv/install.stamp
	$(PIP) -e '.[test]'
	@touch $@

.venv/bench.stamp: .venv/install.stamp
	$(PIP) -e '.[bench,cluster,spark]'
	@touch $@

.venv/etcd.stamp: scripts/unpack-etcd | .venv/bin/python
	scripts/unpack-etcd .venv/etcd
	@touch $@

%/node_modules/install.stamp: %/package.json
	@command -v npm >/dev/null \
		|| { echo "Node.js is needed for this, type: sudo apt-get install nodejs npm" >&2; exit 1; }
	cd $* && $(NPM)
	@touch $@
