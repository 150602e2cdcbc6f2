"""Spark's session as the jobs start it: locally on all cores, or as spark-submit says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from mqstore.jobs.errors import JavaMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_INSTALL: Final = (
    f"install a Java runtime, {JAVA_MIN} or newer (openjdk-17-jre-headless on Debian and Ubuntu,"
    " java-17-openjdk-headless on Fedora), or set JAVA_HOME"
)


def check_java(environment: Mapping[str, str] | None = None) -> None:
    """Check the Java version. Raises JavaMissing without Java, or for one that Spark rejects.
    ``environment`` is by default that of the process."""
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    path = f"{home}/bin" if home else environment.get("PATH", "")
    java = shutil.which("java", path=path)
    if java is None:
        where = f"in JAVA_HOME {home}" if home else "on the PATH"
        raise JavaMissing(f"no java {where}, and Spark needs one: {_INSTALL}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603  # the user's own Java
    version = _VERSION.search(said)
    if version is None or int(version[1]) < JAVA_MIN:
        found = "of an unknown version" if version is None else version[1]
        raise JavaMissing(f"{java} is Java {found}, which Spark cannot use: {_INSTALL}")


def spark_session(name: str, **settings: str) -> SparkSession:
    """The session of this process, made if there is none. Raises JavaMissing.

    ``settings`` are Spark's, with ``_`` for ``.``; what spark-submit or SPARK_CONF_DIR says stays.
    Where nothing says otherwise, Spark runs in this process, on all its cores.
    """
    check_java()
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setAppName(name)
    for setting, value in settings.items():
        conf.set(setting.replace("_", "."), value)
    return SparkSession.builder.config(conf=conf).getOrCreate()
