# Everything one does with this project. `make` alone explains itself: the text behind ## is the help.

SHELL := /bin/bash
# rustup's own place, for shells that were open before it was installed.
export PATH := $(PATH):$(HOME)/.cargo/bin

# For `make run`.
PORT ?= 6379
# For `make test`, `make test-servers` and `make memcheck`: only tests with this in their name. For `make bench`: only these
# parts.
ONLY ?=
# For `make test-clients`: only these of python, rust, typescript, top and pages.
LANGUAGES ?=
# For `make bench` and `make memcheck`: the server (redis7, redis8, valkey8 or valkey9). For `make bench`: how many rounds
# count; whether to renew the tables and the picture in docs; whether to count instructions as well.
SERVER ?= redis7
ROUNDS ?=
WRITE ?=
CALLGRIND ?=
# For `make prove`: how long each part takes, which parts (all), and on which servers.
SECONDS ?= 60
PART ?=
ON ?= redis7 redis8 valkey8 valkey9

.DEFAULT_GOAL := help
.PHONY: help run build deps test test-servers test-clients prove memcheck servers cluster cluster-stop fuzz bench docs fmt lint clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- use it

run: build ## Install what is missing, build, and serve locks on port 6379 (PORT=7000 for another)
	@mkdir -p run
# Two servers that write to the same files would mix up their locks at the next start.
	redis-server redis.conf --port $(PORT) $(if $(filter-out 6379,$(PORT)),--appenddirname appendonlydir-$(PORT))

cluster: build ## The same as a Redis Cluster of six nodes, on ports 7001 to 7006 (PORT=8001 for others)
	@scripts/cluster start $(if $(filter 6379,$(PORT)),7001,$(PORT))

cluster-stop: ## End that cluster, and remove its data
	@scripts/cluster stop

build: deps ## Build the module: target/release/libprlock.so
	cargo build --release --locked

deps:
	@scripts/install-deps

# --- test it

test: build ## Run all tests on the system's redis-server, 7.0 on Debian 12 (ONLY=claims for those with this in their name)
	@scripts/test redis7 -- $(ONLY)

test-servers: build servers ## Run the server tests on Redis 8.2, Valkey 8.1 and Valkey 9.1
	@scripts/test redis8 valkey8 valkey9 -- $(ONLY)

test-clients: build ## Run the tests of the examples, each with its own tools (LANGUAGES=python for one)
	@scripts/test-clients $(LANGUAGES)

prove: build servers ## Crash, fail over, fuzz and check histories, each for a minute (SECONDS=600 PART=crash ON=valkey9)
	@scripts/install-deps prove
	@scripts/prove $(SECONDS) $(ON) -- $(PART)

memcheck: build ## Run the server tests with the servers under valgrind, half an hour (SERVER=redis7 ONLY=linger)
	@scripts/install-deps memcheck
	@scripts/memcheck $(SERVER) -- $(ONLY)

fuzz: ## Fuzz what reads bytes from outside, guided by coverage, each for a minute (SECONDS=600)
	@scripts/fuzz $(SECONDS)

servers: ## Fetch these three servers into .cache/servers, once
	@scripts/install-deps servers
	@scripts/fetch-servers

# --- measure it

bench: build ## Measure it beside plain commands, Lua, polling and SCAN (SERVER=valkey9, ONLY=cycle,list; WRITE=1 renews docs)
	@PRLOCK_SERVER=$(SERVER) ONLY=$(ONLY) ROUNDS=$(ROUNDS) WRITE=$(WRITE) CALLGRIND=$(CALLGRIND) \
		cargo bench --quiet --locked --profile compare --bench compare

# --- change it

docs: ## Write docs/commands.md anew from the command table
	PRLOCK_WRITE_DOCS=1 cargo test --locked --lib docs

fmt: ## Format the code
	cargo fmt

lint: ## Look for what should be written otherwise; warnings are errors
	cargo clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --lib --no-deps --document-private-items

clean: ## Remove what was built; the data in run/ and the fetched servers stay
	cargo clean
