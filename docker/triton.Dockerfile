# Triton with groundwatch's model code and a model repository. By default it serves the miniature checkpoints,
# which the package carries; name others in a file as docs/models.md shows:
#
#   docker build -f docker/triton.Dockerfile --build-arg MODELS=/build/docker/served.toml -t groundwatch-triton .
#
# Checkpoints on a hub are fetched when Triton starts, into HF_HOME: give it a volume.
ARG TRITON=nvcr.io/nvidia/tritonserver:25.02-py3

# hadolint ignore=DL3006
FROM ${TRITON}
ARG MODELS=miniature
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_BREAK_SYSTEM_PACKAGES=1 \
    PIP_CONSTRAINT=/build/docker/constraints.txt
WORKDIR /build
COPY docker/constraints.txt docker/requirements-triton.txt docker/
RUN ["python3", "-m", "pip", "install", "--require-hashes", "--requirement", "docker/requirements-triton.txt"]
COPY pyproject.toml README.md LICENSE ./
COPY services services
COPY docker docker
RUN python3 -m pip install --no-deps --no-build-isolation /build \
    && groundwatch admin models /models --models "${MODELS}"
ENV HOME=/var/cache/models \
    HF_HOME=/var/cache/models/huggingface \
    PYTHONDONTWRITEBYTECODE=1
RUN mkdir -p /var/cache/models && chown 1000:1000 /var/cache/models
ARG VERSION=0.1.0
ARG REVISION=""
ARG SOURCE=""
LABEL org.opencontainers.image.title="groundwatch-triton" \
    org.opencontainers.image.description="Triton with the models that verify, describe and encode for groundwatch" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.source="${SOURCE}"
WORKDIR /tmp
USER 1000:1000
EXPOSE 8000 8001 8002
HEALTHCHECK --interval=15s --timeout=6s --start-period=900s --retries=4 \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/v2/health/ready', timeout=5)"]
# Models are loaded at the start and by nobody later: who may load one runs code in it. What else controls the
# server needs a key that nobody knows. GROUNDWATCH_TRITON_MODELS names those of the repository that are served,
# by blanks; empty: all.
CMD ["sh", "-c", "key=$(python3 -c 'import secrets; print(secrets.token_urlsafe(32))') && repository=/models && if [ -n \"$GROUNDWATCH_TRITON_MODELS\" ]; then repository=/tmp/models && rm -rf $repository && mkdir $repository && for model in $GROUNDWATCH_TRITON_MODELS; do [ -d /models/$model ] && ln -s /models/$model $repository/ || { echo \"GROUNDWATCH_TRITON_MODELS: /models has no $model\" >&2; exit 2; }; done; fi && exec tritonserver --model-repository=$repository --model-control-mode=none --http-restricted-api=shared-memory,trace,logging:key=$key --grpc-restricted-protocol=shared-memory,trace,logging:key=$key --exit-timeout-secs=60"]
