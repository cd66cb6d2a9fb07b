# make run    sets up and runs the accelerator; ARGS="--listen …" are passed on
# make test   sets up and runs every test
# make check  formatting, lints, documentation
# make bench  Ekiden beside squid, dante, HAProxy, nginx and microsocks
# make demo   a download over an emulated long, lossy link, directly and through the accelerator
# make lab    the long measurements, kept under experiments/results/
# make fuzz   every parser, SECONDS each
# make book   the documentation as pages, in target/book
# make bpf    the programs for the kernel, which are kept as they are built; with Debian 12's clang

CARGO ?= cargo
ARGS ?=
SECONDS ?= 60
RESULTS := experiments/results

.PHONY: run quick build test check bench demo lab book fuzz bpf peers toolchain

run: quick
	exec target/quick/ekiden serve $(ARGS)

# without the laboratory and PostgreSQL, and without the minutes that a release's optimiser takes
quick: toolchain
	$(CARGO) build --profile quick --package ekiden --no-default-features --features bpf,cache,tui

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
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items
	@sh scripts/optional.sh cargo-deny "$(CARGO) deny check licenses advisories"
	@sh scripts/optional.sh cargo-machete "$(CARGO) machete"
	@sh scripts/words.sh

bench: build peers
	@mkdir -p $(RESULTS)
	$(CARGO) bench --package ekiden-studies --bench relays -- --ekiden $(CURDIR)/target/release/ekiden $(ARGS)

demo: build peers
	@sh scripts/demo.sh

lab: build peers
	@sh scripts/lab.sh $(RESULTS)

book: toolchain
	@sh scripts/book.sh

bpf:
	@sh scripts/bpf.sh

fuzz:
	@for target in http_request http_response chunked socks config destination link_text capture acknowledgement tunnel_frames; do sh fuzz/run.sh $$target $(SECONDS) || exit 1; done
