# One image with an entry point for each of store-writer, query, coordinator and the mqstore command.
# They share almost all files, and a node pulls one image once.
# Name a digest (NAME@sha256:…) for an image that can be built again; the tag moves with its security updates.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
# The kernel module needs a C compiler, and Python's headers where the base image is without them.
RUN apt-get update -q \
    && headers=$(python3 -c 'import os, sysconfig; h = sysconfig.get_path("include"); print("" if os.path.exists(h + "/Python.h") else "python3-dev")') \
    && apt-get install -y -q --no-install-recommends gcc libc6-dev $headers \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/mqstore
ENV PATH=/opt/mqstore/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY requirements/build.txt requirements/run.txt requirements/
RUN python3 -m venv /opt/tools \
    && /opt/tools/bin/pip install -q --require-hashes -r requirements/build.txt \
    && pip install -q --require-hashes -r requirements/run.txt
# Further packages, such as s3fs for backups to s3:// URLs.
ARG PACKAGES=
RUN [ -z "$PACKAGES" ] || pip install -q $PACKAGES
COPY LICENSE ./
COPY charts/mqstore/files charts/mqstore/files
COPY libs libs
COPY services services
RUN mkdir /wheels && for package in libs/* services/*; do \
        /opt/tools/bin/pip wheel -q --no-deps --no-build-isolation -w /wheels "./$package" || exit 1; done \
    && pip install -q --no-deps /wheels/*.whl \
    && pip check \
    && pip uninstall -q -y setuptools pip

FROM ${BASE_IMAGE}
RUN apt-get update -q \
    && apt-get install -y -q --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/apt /var/log/dpkg.log /var/log/alternatives.log \
    && echo 'mqstore:x:1000:1000:mqstore:/var/lib/mqstore:/usr/sbin/nologin' >>/etc/passwd \
    && echo 'mqstore:x:1000:' >>/etc/group \
    && install -d -o 1000 -g 1000 /var/lib/mqstore
COPY --from=build /opt/mqstore /opt/mqstore
COPY docker/health.py /usr/local/lib/mqstore/
COPY --chmod=755 docker/entrypoint.sh /usr/local/bin/mqstore-entrypoint
ARG VERSION=0.1.0
ARG BASE_IMAGE
LABEL org.opencontainers.image.title="mqstore services" \
      org.opencontainers.image.description="RocketMQ's message store as services: store-writer, query, coordinator" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${BASE_IMAGE}" \
      org.opencontainers.image.version="${VERSION}"
ENV PATH=/opt/mqstore/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    MQSTORE_STORE=/var/lib/mqstore/store
USER 1000:1000
WORKDIR /var/lib/mqstore
EXPOSE 8081 8082 8083
HEALTHCHECK --interval=10s --start-period=30s CMD ["mqstore-entrypoint", "health"]
ENTRYPOINT ["tini", "--", "mqstore-entrypoint"]
CMD ["mqstore", "--help"]
