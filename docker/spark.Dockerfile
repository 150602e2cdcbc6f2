# Driver and executors of the jobs: pyspark with its own Spark, a Java runtime, and mqstore-jobs.
# Name a digest (NAME@sha256:…) for an image that can be built again; the tag moves with its security updates.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
RUN apt-get update -q \
    && headers=$(python3 -c 'import os, sysconfig; h = sysconfig.get_path("include"); print("" if os.path.exists(h + "/Python.h") else "python3-dev")') \
    && apt-get install -y -q --no-install-recommends gcc libc6-dev $headers \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/mqstore
ENV PATH=/opt/mqstore/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY requirements/build.txt requirements/spark.txt requirements/
RUN python3 -m venv /opt/tools \
    && /opt/tools/bin/pip install -q --require-hashes -r requirements/build.txt \
    && pip install -q --require-hashes -r requirements/spark.txt
# Python packages for the place of results, for instance s3fs; they may need other versions than the lock.
ARG PACKAGES=
RUN [ -z "$PACKAGES" ] || pip install -q $PACKAGES
COPY LICENSE ./
COPY libs/storage libs/storage
COPY libs/wire libs/wire
COPY libs/client libs/client
COPY spark-jobs spark-jobs
RUN mkdir /wheels && for package in libs/storage libs/wire libs/client spark-jobs; do \
        /opt/tools/bin/pip wheel -q --no-deps --no-build-isolation -w /wheels "./$package" || exit 1; done \
    && pip install -q --no-deps /wheels/*.whl \
    && pip check \
    && pip uninstall -q -y setuptools pip

FROM ${BASE_IMAGE}
# A Java runtime if the base image has none. Spark does not start for a user id without a name.
RUN mkdir -p /usr/share/man/man1 && apt-get update -q \
    && java=$(command -v java >/dev/null || echo openjdk-17-jre-headless) \
    && apt-get install -y -q --no-install-recommends tini procps $java \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/apt /var/log/dpkg.log /var/log/alternatives.log \
    && [ -e /opt/java ] || ln -s "$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")" /opt/java
RUN echo 'spark:x:1000:1000:spark:/tmp:/usr/sbin/nologin' >>/etc/passwd \
    && echo 'spark:x:1000:' >>/etc/group
COPY --from=build /opt/mqstore /opt/mqstore
RUN ln -s "$(/opt/mqstore/bin/python -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)')" /opt/spark
COPY --chmod=755 docker/spark-entrypoint.sh /usr/local/bin/spark-entrypoint
ARG VERSION=0.1.0
ARG BASE_IMAGE
LABEL org.opencontainers.image.title="mqstore Spark jobs" \
      org.opencontainers.image.description="The commit log as a Spark data source, and the jobs that run over it" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${BASE_IMAGE}" \
      org.opencontainers.image.version="${VERSION}"
ENV PATH=/opt/mqstore/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    JAVA_HOME=/opt/java SPARK_HOME=/opt/spark PYSPARK_PYTHON=/opt/mqstore/bin/python
USER 1000:1000
WORKDIR /tmp
ENTRYPOINT ["tini", "-s", "--", "spark-entrypoint"]
CMD ["python", "-c", "import mqstore.jobs, pyspark; print('pyspark', pyspark.__version__)"]
