"""Build backend (PEP 517) of the package: a wheel is a zip file of the package and two lists.

Where the project has been built, the library and the command go into the wheel (cordon/_bundled), so that
`pip install ./python` gives something that runs. CORDON_BUILD names the build folder, ../build is the
default; without one the package looks for an installed library.
"""

from __future__ import annotations

import base64
import hashlib
import os
import pathlib
import zipfile

NAME, VERSION = "cordon", "0.1.0"
HERE = pathlib.Path(__file__).resolve().parent.parent
INFO = f"{NAME}-{VERSION}.dist-info"
METADATA = f"""Metadata-Version: 2.1
Name: {NAME}
Version: {VERSION}
Summary: Run code nobody trusts, get an honest result
License: Apache-2.0
Requires-Python: >=3.9
"""


def _built():
    build = pathlib.Path(os.environ.get("CORDON_BUILD") or HERE.parent / "build")
    library, program = build / "src" / "lib" / "libcordon.so.0", build / "cordon"
    return [(library, "cordon/_bundled/lib/libcordon.so.0"), (program, "cordon/_bundled/bin/cordon")] \
        if library.is_file() and program.is_file() else []


def _package():
    for path in sorted((HERE / NAME).rglob("*")):
        name = path.relative_to(HERE).as_posix()
        if path.is_file() and "__pycache__" not in name and "_bundled" not in name:
            yield path, name


def _write(directory, entries, tag):
    pure = "true" if tag.endswith("any") else "false"
    name = f"{NAME}-{VERSION}-{tag}.whl"
    entries = [*entries, (METADATA.encode(), f"{INFO}/METADATA"),
               (f"Wheel-Version: 1.0\nGenerator: cordon\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode(),
                f"{INFO}/WHEEL")]
    record = []
    with zipfile.ZipFile(pathlib.Path(directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for content, inside in entries:
            mode = 0o644
            if isinstance(content, pathlib.Path):
                mode = 0o755 if os.access(content, os.X_OK) else 0o644
                content = content.read_bytes()
            info = zipfile.ZipInfo(inside, (2020, 1, 1, 0, 0, 0))
            info.external_attr = (0o100000 | mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(info, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{inside},sha256={digest},{len(content)}\n")
        wheel.writestr(f"{INFO}/RECORD", "".join(record) + f"{INFO}/RECORD,,\n")
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    built = _built()
    return _write(wheel_directory, [*_package(), *built], "py3-none-linux_x86_64" if built else "py3-none-any")


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _write(wheel_directory, [(f"{HERE}\n".encode(), "cordon.pth")], "py3-none-any")


def build_sdist(sdist_directory, config_settings=None):
    import tarfile
    name = f"{NAME}-{VERSION}"
    with tarfile.open(pathlib.Path(sdist_directory) / f"{name}.tar.gz", "w:gz") as archive:
        for path, inside in [*_package(), (HERE / "pyproject.toml", "pyproject.toml"),
                             (HERE / "tools" / "build_wheel.py", "tools/build_wheel.py")]:
            archive.add(path, f"{name}/{inside}")
    return f"{name}.tar.gz"
