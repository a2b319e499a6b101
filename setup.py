"""Build fastgae._core; everything else is in pyproject.toml.

FASTGAE_BUILD_EXT=auto      build it; if that fails, say so loudly and make a pure wheel that carries the reason
FASTGAE_BUILD_EXT=require   build it or fail (the default under cibuildwheel)
FASTGAE_BUILD_EXT=never     make a pure wheel
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pybind11.setup_helpers import ParallelCompile, Pybind11Extension, build_ext
from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.sdist import sdist

MODE = os.environ.get("FASTGAE_BUILD_EXT") or ("require" if os.environ.get("CIBUILDWHEEL") else "auto")
if MODE not in ("auto", "require", "never"):
    sys.exit(f"FASTGAE_BUILD_EXT={MODE!r}: expected auto, require or never")

# pip shows nothing else of a build that succeeds than the name of the wheel, so the name says what is missing in it.
WITHOUT_EXTENSION = "0_without_compiled_backend_see_fastgae_info"

# Every operation is rounded once on every platform: no contraction into fused multiply-adds, no unsafe mathematics.
if sys.platform == "win32":
    # Without the definition, the first std::mutex crashes where another package has loaded an older msvcp140.dll.
    compile_args, link_args = ["/O2", "/fp:precise", "/D_DISABLE_CONSTEXPR_MUTEX_CONSTRUCTOR"], []
else:
    compile_args = ["-O2", "-ffp-contract=off", "-fno-math-errno", "-fvisibility=hidden", "-pthread"]
    strip = "-Wl,-S,-x" if sys.platform == "darwin" else "-Wl,-s"  # a tenth of the file is symbols that nothing reads
    link_args = ["-pthread", strip]


def long_description() -> str:
    """Return README.md with links and pictures that work on the index, which has no files beside it."""
    source = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Source"]
    version = re.search('__version__ = "(.*)"', Path("fastgae/__init__.py").read_text(encoding="utf-8"))[1]

    def absolute(relative: re.Match[str]) -> str:
        before, path = relative.groups()
        return f"{before}{source}/{'raw' if path.endswith(('.png', '.svg')) else 'blob'}/v{version}/{path}"

    readme = Path("README.md").read_text(encoding="utf-8")
    return re.sub(r'(\]\(|(?:href|src|srcset)=")(?!https://|#)([^)"]+)', absolute, readme)


def files_of(*kinds: str) -> list[str]:
    return sorted(str(path) for kind in kinds for path in Path("csrc").glob(kind))


core = Pybind11Extension(
    "fastgae._core",
    files_of("*.cpp"),
    depends=["setup.py", *files_of("*.hpp", "*.inl")],
    cxx_std=17,
    extra_compile_args=compile_args,
    extra_link_args=link_args,
)


@contextmanager
def recorded(output: list[str]) -> Iterator[None]:
    """Collect what this process and its compilers print; at the end, append it to ``output`` and show it."""
    sys.stdout.flush()
    sys.stderr.flush()
    stdout, stderr = os.dup(1), os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for saved, descriptor in ((stdout, 1), (stderr, 2)):
                os.dup2(saved, descriptor)
                os.close(saved)
            log.seek(0)
            output.append(log.read().decode(errors="replace"))
            sys.stderr.write(output[-1])


class BuildExt(build_ext):
    def run(self) -> None:
        library = Path(self.get_ext_fullpath(core.name))
        note = library.with_name("_build_failure.txt")
        note.unlink(missing_ok=True)
        if MODE == "require":
            return super().run()
        reason = "FASTGAE_BUILD_EXT=never"
        if MODE == "auto":
            output: list[str] = []
            try:
                with recorded(output):
                    super().run()
                return None
            except Exception as error:
                lines = [*output[0].splitlines(), f"{type(error).__name__}: {error}"][-20:]
                # Cut the middle out of a compiler's command line, because both ends say enough.
                reason = "\n".join(line if len(line) <= 200 else f"{line[:100]} ... {line[-95:]}" for line in lines)
                loud = "!" * 78
                print(f"\n{loud}\nfastgae is built WITHOUT its compiled backend:\n{reason}\n{loud}\n", file=sys.stderr)
        # Remove the library of an earlier build, which would slip into the wheel or stay in an editable install.
        library.unlink(missing_ok=True)
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(reason + "\n", encoding="utf-8")
        self.extensions = self.distribution.ext_modules = []
        return None


class BdistWheel(bdist_wheel):
    def run(self) -> None:
        # The tag depends on whether the extension builds, so build it before the tag is chosen.
        self.run_command("build_ext")
        self.root_is_pure = not self.distribution.has_ext_modules()
        self.build_number = WITHOUT_EXTENSION if self.root_is_pure else None
        super().run()


class Sdist(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        # Pack only files that git tracks, because a clone holds other files too, and some of them are private.
        if Path(".git").exists():
            listed = subprocess.run(["git", "ls-files", "-z"], stdout=subprocess.PIPE, text=True)
            if listed.returncode:
                sys.exit("A source distribution holds the files that git tracks, and git cannot list them: see above")
            tracked = set(listed.stdout.split("\0"))
            metadata = Path(self.get_finalized_command("egg_info").egg_info)
            files = [file for file in files if Path(file).parent == metadata or Path(file).as_posix() in tracked]
        super().make_release_tree(base_dir, files)


ParallelCompile().install()  # compiles as many files side by side as there are CPUs
setup(
    long_description=long_description(),
    long_description_content_type="text/markdown",
    ext_modules=[core],
    cmdclass={"build_ext": BuildExt, "bdist_wheel": BdistWheel, "sdist": Sdist},
)
