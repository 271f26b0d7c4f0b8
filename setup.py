"""Builds the native kernels beside the package; everything else is in pyproject.toml.

Each ISA's file is compiled with its own flags and chosen at run time, so one wheel serves every CPU of an architecture.
Without a compiler the package still installs and the engine runs on PyTorch alone.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("vivace/engine/native")
COMMON = [
    "-O3",
    "-pthread",
    "-fvisibility=hidden",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-Wno-psabi",
    "-Wno-uninitialized",
    "-Wno-maybe-uninitialized",
]
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni", "-mprefer-vector-width=512"]
X86_FLAGS = {
    "isa_avx2.cpp": AVX2,
    "isa_avx512.cpp": AVX512,
    "isa_avxvnni.cpp": [*AVX2, "-mavxvnni"],
    "isa_amx.cpp": [*AVX512, "-mavx512bf16", "-mamx-tile", "-mamx-int8", "-mamx-bf16"],
}


class BuildNative(build_ext):
    def build_extension(self, ext: Any) -> None:
        compiler = self.compiler
        x86 = platform.machine().lower() in ("x86_64", "amd64")
        objects: list[str] = []

        def compile_one(source: str, flags: list[str]) -> None:
            standard = ["-std=c++17"] if source.endswith(".cpp") else []
            objects.extend(
                compiler.compile(
                    [source],
                    output_dir=self.build_temp,
                    include_dirs=[*(ext.include_dirs or [])],
                    extra_postargs=[*COMMON, *standard, *flags],
                    depends=ext.depends,
                )
            )

        try:
            for source in ext.sources:
                flags = X86_FLAGS.get(Path(source).name, []) if x86 else []
                try:
                    compile_one(source, flags)
                except Exception:
                    if not flags:
                        raise
                    print(f"vivace: this compiler does not know {' '.join(flags)}; building without that path")
                    compile_one(source, [])
            target = self.get_ext_fullpath(ext.name)
            compiler.link_shared_object(objects, target, extra_postargs=["-pthread"], target_lang="c++")
        except Exception as error:
            print(f"vivace: the native kernels were not built ({error}); the engine will run on PyTorch alone")
            if not ext.optional:
                raise


setup(
    ext_modules=[
        Extension(
            "vivace.engine.native._native",
            sources=sorted(str(p) for p in [*NATIVE.glob("src/*.cpp"), *NATIVE.glob("src/*.c")]),
            include_dirs=[str(NATIVE), str(NATIVE / "src")],
            depends=sorted(str(p) for p in [*NATIVE.glob("src/*.h"), *NATIVE.glob("src/*.inl"), *NATIVE.glob("*.h")]),
            language="c++",
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildNative},
)
