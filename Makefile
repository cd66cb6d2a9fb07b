# make run    sets up and runs the accelerator; ARGS="--listen …" are passed on
# make test   sets up and runs every test
# make check  formatting, lints, documentation
# make bench  Ekiden beside squid, dante, HAProxy, nginx and microsocks
# make demo   a download over an emulated long, lossy link, directly and through the accelerator
# make lab    the long measurements, kept under experiments/results/
# make fuzz   every parser, SECONDS each, and a table of inputs, coverage and crashes; ARGS="--json", ARGS="socks --keep"
# make fuzz-http  the same HTTP streams to Ekiden, nginx and squid for SECONDS; SEED=2, ARGS="--json"
# make suites others' suites: h2spec, Autobahn, http-cache-tests, curl's tests, testssl; ARGS="h2spec cache"
# make dashboard  the daemon's pages in Chromium: Playwright, axe, Lighthouse, first paint over a long link; ARGS="look"; root
# make soak   HOURS (0.05) of traffic through every door while faults happen, drawn by SEED; root
# make attack  floods on loopback, and what the relay lets them have; ARGS="tls syns --json FILE --strict"; root and some minutes
# make packages  Debian packages, static programs, container images, in target/packages
# make repository KEY=…  an apt repository of them, signed by that key of gpg, in target/repository
# make packages-test  installs, runs and purges them in a fresh Debian 12; root and some minutes
# make book   the documentation as pages, in target/book
# make bpf    the programs for the kernel, which are kept as they are built; with Debian 12's clang

CARGO ?= cargo
ARGS ?=
SECONDS ?= 60
HOURS ?= 0.05
SEED ?= 1
RESULTS := experiments/results

.PHONY: run quick build test check bench demo lab soak attack book fuzz fuzz-http suites dashboard bpf peers toolchain packages repository packages-test

run: quick
	exec target/quick/ekiden serve $(ARGS)

# without the laboratory, PostgreSQL, [acme], [wireguard] and mail, and without the minutes that a release's optimiser takes
quick: toolchain
	$(CARGO) build --profile quick --package ekiden --no-default-features --features api,bpf,cache,dashboard,tui,zones

build: toolchain
	$(CARGO) build --release --package ekiden

# cargo fetches what it needs from its registry by itself
toolchain:
	@command -v $(CARGO) >/dev/null || { echo "make: cargo ≥ 1.95 is needed: https://rustup.rs"; exit 1; }
	@command -v cc >/dev/null || { echo "make: a linker is needed: apt-get install gcc"; exit 1; }
	@sh scripts/headers.sh

# where the peers cannot be installed, their tests skip loudly (in CI they fail)
peers:
	@sh scripts/peers.sh || [ -z "$$CI" ]

# most tests wait, for sockets, kernels and peers: more of them at once than processors
test: export RUST_TEST_THREADS ?= 6
test: toolchain peers
	@sh scripts/bpf.sh --check
	$(CARGO) build --workspace --all-targets
	EKIDEN_BIN=$(CURDIR)/target/debug/ekiden $(CARGO) test --workspace

check: toolchain
	$(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) fmt --check --manifest-path fuzz/Cargo.toml
	$(CARGO) clippy --locked --manifest-path fuzz/Cargo.toml --target-dir target --no-default-features --features capture -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items
	@sh scripts/optional.sh cargo-deny "$(CARGO) deny check licenses advisories"
	@sh scripts/optional.sh cargo-machete "$(CARGO) machete"
	@sh scripts/words.sh

bench: build peers
	@mkdir -p $(RESULTS)
	$(CARGO) bench --package ekiden-studies --bench relays -- --ekiden $(CURDIR)/target/release/ekiden $(ARGS)

demo: build
	@sh scripts/demo.sh

lab: build peers
	@sh scripts/lab.sh $(RESULTS)

# as `make run`, and with PostgreSQL
soak: toolchain peers
	$(CARGO) build --profile quick --package ekiden --package ekiden-soak --no-default-features --features ekiden/api,ekiden/bpf,ekiden/cache,ekiden/dashboard,ekiden/postgres,ekiden/tui,ekiden/zones
	target/quick/ekiden-soak --ekiden target/quick/ekiden --hours $(HOURS) --seed $(SEED) $(ARGS)

attack: build
	EKIDEN=target/release/ekiden python3 scripts/attack/attack.py $(ARGS)

packages:
	@sh scripts/packages/make.sh

repository:
	@python3 scripts/packages/repository.py "$(KEY)" $(or $(FOLDER),target/repository) $(or $(wildcard target/packages/*.deb),$(error run `make packages` first))

packages-test:
	@sh scripts/packages/test.sh $(ARGS)

book: toolchain
	@sh scripts/book.sh

bpf:
	@sh scripts/bpf.sh

fuzz: toolchain
	@python3 fuzz/run.py --seconds $(SECONDS) $(ARGS)

fuzz-http: toolchain peers
	$(CARGO) test --package ekiden --test differential -- run --seconds $(SECONDS) --seed $(SEED) $(ARGS)

suites: quick peers
	@python3 scripts/suites/suites.py $(ARGS)

# with the laboratory, whose link stands between browser and relay
dashboard: toolchain peers
	$(CARGO) build --profile quick --package ekiden
	@sh scripts/dashboard/measure.sh $(ARGS)
