# The steps of .ci/run, each with the steps that it needs first. .ci/shell has the functions.
# make runs them side by side, the long ones first, and prints a step when it has ended. A step whose libraries are not
# there yet when its turn comes is run last, so a short one, `compat`, comes early and begins the downloads.

SHELL := $(CURDIR)/.ci/shell
.SHELLFLAGS := -c
.ONESHELL:
.SILENT:

PUSH := ray compat readme tiny thread address native emulated gpu peers tensors fuzz gate faults corpus urls lint site index \
    pure release benchmarks snippets users
# What needs no push: .github/workflows/nightly.yml runs it, with new seeds where something is random. On a push,
# `emulated` tries two or three of the machines, `release` collects the tests and runs those that depend on what is
# installed, `peers` compares the functions that the libraries' own tests call, and `gpu` compiles every sixth variant.
NIGHTLY := every-machine every-release-test every-variant suites random tiny-random address-random thread-random \
    files mutants planted slower

.PHONY: all nightly $(PUSH) $(NIGHTLY) sdist wheel installed libraries libraries-and-wheel system emulators
all: $(PUSH)
nightly: $(NIGHTLY)

# What the other steps need

system:
	step "packages of the system"
	packages ccache ccache
	packages valgrind valgrind
	packages aarch64-linux-gnu-g++ g++-aarch64-linux-gnu
	packages s390x-linux-gnu-g++ g++-s390x-linux-gnu
	packages qemu-s390x-static qemu-user-static
	packages /usr/include/simde/x86/avx512.h libsimde-dev

sdist:
	step "the source distribution"
	mkdir "$$work/empty"
	venv installed
	python --version
	install --requirement .github/tools.txt
	python -m build --sdist --outdir "$$work/sdist" . >/dev/null 2>&1

wheel: sdist system
	step "the compiled wheel, from the source distribution"
	venv installed
	make_wheel require FASTGAE_BUILD_EXT=require

installed: wheel
	step "the compiled wheel, with every tool"
	venv installed
	install "$$(echo "$$work"/wheels/require/*.whl)[dev]"
	python -m pip check
	outside python -m fastgae info
	core=$$(outside python -c 'import fastgae._core; print(fastgae._core.__file__)')
	[[ $$(grep -c '\.symtab' "$$core") == 0 ]]  # stripped

# The peers whose requirements agree, and then, without theirs, those that pin another torch or NumPy: their tests take
# single functions out of their files. Last, the oldest versions that hooks know. About 3 GB, and minutes of download.
libraries: sdist
	step "the peers and their requirements"
	venv peers
	FASTGAE_BUILD_EXT=never install "$$(echo "$$work"/sdist/*.tar.gz)[peers]" numba triton mypy "pyright[nodejs]==1.1.414"
	sed -n 's/^PACKAGE = "\(.*\)"/\1/p' "$$repo"/tests/peers/peer_*.py | xargs python -m pip install --quiet --no-deps
	(cd "$$repo/tests" && python -c 'from peers.lines import PACKAGES; print(*PACKAGES)') | xargs python -m pip install --quiet --no-deps
	(cd "$$repo/tests" && python -m peers.oldest "$$work/oldest")

libraries-and-wheel: libraries wheel
	step "the compiled wheel beside the peers"
	venv peers
	install --no-deps --force-reinstall "$$work"/wheels/require/*.whl

# What reads and what is built

lint: installed
	step "lint and types"
	venv installed
	ruff check .
	ruff format --check .
	clang-format --dry-run --Werror csrc/* tests/{native,faults,emulated}/*.cpp tests/emulated/simde/*.h
	mypy
	pyright tests/typed/{numpy_user,mistakes}.py
	outside python -m mypy.stubtest fastgae._core

site: installed
	step "the site, where a warning is an error; its search and its page to play with, in a browser"
	venv installed
	NO_MKDOCS_2_WARNING=1 timeout 300 mkdocs build --strict --site-dir "$$work/site"  # with --quiet, it would count no warning
	command -v google-chrome >/dev/null || packages chromium chromium
	tests "$$repo/tests/browser"  # in CI, it fails without a browser

index: installed
	step "on the index: the long description, the repository, the workflows"
	venv installed
	twine check --strict "$$work"/sdist/* "$$work"/wheels/require/*
	sp-repo-review .
	zizmor --offline --quiet .github

pure: installed
	step "without a compiler: a pure wheel whose name and contents say so"
	venv installed
	make_wheel auto FASTGAE_BUILD_EXT=auto CC=/nonexistent CXX=/nonexistent
	[[ $$wheel == *-0_without_compiled_backend_see_fastgae_info-py3-none-any.whl ]]
	install --no-deps --target "$$work/auto" "$$wheel"
	PYTHONPATH=$$work/auto outside python -m fastgae info | grep -F /nonexistent
	echo "FASTGAE_BUILD_EXT=never: the tests"
	make_wheel never FASTGAE_BUILD_EXT=never
	[[ $$wheel == *-py3-none-any.whl ]]
	install --no-deps --target "$$work/never" "$$wheel"
	PYTHONPATH=$$work/never test_installed -k "not numba-" --ignore="$$repo"/tests/cli/test_{compute,diagnose,plot,rollout}.py

release: wheel
	step "a release: the wheel beside nothing but what cibuildwheel installs, so also without Numba"
	venv release
	install "$$work"/wheels/require/*.whl $$(python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["tool"]["cibuildwheel"]["test-requires"])')
	outside python -m fastgae info
	test_installed -k "not cpp:"
	tests --collect-only "$$repo/tests" | tail -3

# Tests

readme: wheel
	step "the README's test command, in the source distribution and a new virtual environment"
	unpack readme
	cd "$$work/source/readme"
	venv readme
	export FASTGAE_TEST_EXPECT=cpp,numba,numpy  # none of them may go untested
	python -m pip install -e '.[test]' && python -m pytest

benchmarks: installed
	step "the benchmarks still run"
	venv installed
	tests --benchmark-disable "$$repo/benchmarks"

gate: libraries-and-wheel
	step "nothing became slower: floors, choices, counts, instructions"
	venv peers
	outside python "$$repo/benchmarks" gate

fuzz: installed
	step "random calls, with a fixed seed"
	venv installed
	fuzz --calls 9000 --seed 1 --backend cpp --backend numpy
	fuzz --calls 3000 --seed 6  # also Numba, which compiles kernels for most of this time
	# diagnose rarely comes up among the others, and computes on one backend.
	fuzz --calls 1500 --seed 5 --function diagnose --backend numpy

tiny: installed
	step "every threshold at its smallest: the compiled module in the tests that a threshold can change, and random calls"
	venv installed
	on_build tiny bash -euc '
	    python -m fastgae info
	    python -m pytest -q -p no:cacheprovider -k "not numba and not numpy" . --ignore={cli,compat,data,fuzz,typed} \
	        --ignore=test_{architecture,diagnose,diagnose_arrays,dispatch,docs,errors,figures,libraries}.py \
	        --ignore=test_{packaging,performance_gate,pictures,readings,record,testing,workflows}.py
	    python -m fuzz --calls 8000 --seed 2 --backend cpp --backend numpy'

address thread: installed
	step "the compiled module under the $@ sanitizer: random calls"
	venv installed
	on_build $@ python -m fuzz --calls $(if $(filter address,$@),3000 --seed 3,4000 --seed 4) --backend cpp --backend numpy

native: installed
	step "the kernels without Python, under sanitizers"
	venv installed
	tests "$$repo/tests/native"

emulated: installed
	step "the kernels on two other machines, and for AVX-512 where this CPU has none, by emulation"
	venv installed
	on="$$repo/tests/emulated/test_emulated.py::test_harness"
	machines=("$$on["{aarch64,s390x-big-endian}"]")
	grep --quiet avx512dq /proc/cpuinfo || machines+=("$$on[avx512]")
	tests "$${machines[@]}"

faults: installed
	step "failing allocations and threads; exits, forks, small stacks and writers, each in a process of its own"
	venv installed
	tests "$$repo/tests/faults" "$$repo/tests/processes"

corpus: installed
	step "broken files: status 0, 1 or 2, and one line; more random sources"
	venv installed
	tests "$$repo/tests/corpus"

ray: wheel
	step "recorded data on a cluster of Ray's, and in other engines"
	venv ray
	install "$$(echo "$$work"/wheels/require/*.whl)[ray]" "dask[dataframe]" datasets deltalake polars pytest universal-pathlib
	python -c "import datasets, deltalake, pandas, polars"  # or tests are skipped
	export RAY_worker_niceness=0  # Ray's own 15 makes the workers wait for the other steps
	tests "$$repo/tests/ray_data"
	tests "$$repo"/tests/data/test_{on_table,places,random_sources,tables_in_memory}.py \
	    -k "pandas or polars or hugging or delta or random_sources"
	tests -W ignore "$$repo/tests/test_docs.py" -k data

urls: wheel
	step "recorded data behind URLs"
	venv urls
	# pip would look for minutes for an s3fs that fits to the newest boto3 of moto, if it met s3fs only in the extra.
	install "$$(echo "$$work"/wheels/require/*.whl)[remote]" "s3fs>=2025.12" deltalake gcp-storage-emulator "moto[server]" pytest
	tests "$$repo/tests/urls"

peers: libraries-and-wheel
	step "the peers: their own functions beside fastgae.compat"
	venv peers
	FASTGAE_TEST_OLDEST=$$work/oldest tests "$$repo/tests/peers"

compat: libraries-and-wheel
	step "fastgae.compat and the annotations, with tensors"
	venv peers
	python -c "import jax, torch"  # without which most of these tests are skipped
	tests "$$repo"/tests/{compat,typed}

tensors: libraries-and-wheel
	step "tensors, by themselves: they load JAX, which must not be forked"
	venv peers
	python -c "import flatbuffers, hypothesis, jax, rlax, torch"  # or tests are skipped
	tests "$$repo"/tests/{tensors,test_{group_advantages,libraries}.py} \
	    "$$repo"/tests/{test_readings.py::test_lists_of_tensors,data/test_critic.py::test_batches_of_torch}

gpu: libraries-and-wheel
	step "the backend of GPUs: by Triton's interpreter, and its machine code"
	venv peers
	TRITON_INTERPRET=1 tests "$$repo/tests/gpu"

snippets: libraries-and-wheel
	step "the snippets of the pages, with the libraries"
	venv peers
	tests -W ignore "$$repo/tests/test_docs.py"

users: libraries-and-wheel
	step "types of users' code with torch and JAX, and of the examples"
	venv peers
	typed=("$$repo"/tests/typed/{torch,jax}_user.py "$$repo"/examples/*.py)
	# torch has no annotations for backward(), and Minari has none at all.
	outside mypy --strict --allow-untyped-calls --disable-error-code import-untyped --config-file= "$${typed[@]}"
	(cd "$$repo/examples" && pyright "$${typed[@]}")  # where an example finds another one

# At night

emulators: system
	step "the other compilers and emulators"
	packages riscv64-linux-gnu-g++ g++-riscv64-linux-gnu
	packages x86_64-w64-mingw32-g++-posix g++-mingw-w64-x86-64-posix
	packages wine wine wine64

every-machine: installed emulators
	step "the kernels on every machine, by emulation"
	venv installed
	tests "$$repo/tests/emulated"

every-release-test: release
	step "a release: its test command"
	venv release
	tests "$$repo/tests"

every-variant: libraries-and-wheel
	step "every variant of the kernels of GPUs, in machine code"
	venv peers
	FASTGAE_TEST_EVERY=1 TRITON_INTERPRET=1 tests "$$repo/tests/gpu/test_compiled.py"

suites: libraries-and-wheel
	step "the peers' own tests, with fastgae and without"
	venv peers
	export FASTGAE_TEST_REPOSITORIES=$${GITHUB_ACTIONS:+https://github.com}
	tests "$$repo/tests/suites"
	PYTHONPATH=$$work/oldest/skrl tests "$$repo/tests/suites" -k skrl

random: installed
	step "random calls for an hour"
	venv installed
	fuzz --calls 600000

tiny-random: installed
	step "random calls for an hour, at the smallest thresholds"
	venv installed
	on_build tiny python -m fuzz --calls 400000 --backend cpp --backend numpy

address-random thread-random: installed
	step "random calls for an hour, under the $(@:-random=) sanitizer"
	venv installed
	on_build $(@:-random=) python -m fuzz --calls 200000 --backend cpp --backend numpy

files: installed
	step "broken files for an hour"
	venv installed
	outside python "$$repo/tests/corpus/mutants.py" --seconds 3600

mutants: installed
	step "mistakes planted in the kernels are found"
	venv installed
	(cd "$$repo/tests" && python -m fuzz.mutants)

planted: installed
	step "mistakes planted in rollouts are found, and nothing in correct ones, also while a critic learns"
	venv installed
	(cd "$$repo/tests" && python -m support.planted)

slower: libraries-and-wheel
	step "regressions planted in the package are red in the gate"
	venv peers
	outside python "$$repo/benchmarks" gate --self-test
