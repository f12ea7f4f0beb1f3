# anchorscope on a CPU, with the embedded model inside: a container runs without a network.
#   docker build -f docker/cpu.Dockerfile -t anchorscope .
#   docker run --rm -v "$PWD/runs:/data/runs" anchorscope run --limit 600 --out runs/demo
FROM python:3.11-slim

COPY constraints.txt /tmp/constraints.txt
# torch first, from PyTorch's own index: the one on PyPI brings gigabytes of CUDA libraries along.
RUN pip install --no-cache-dir "$(grep '^torch==' /tmp/constraints.txt)" --index-url https://download.pytorch.org/whl/cpu

COPY pyproject.toml README.md LICENSE /src/
COPY src /src/src
RUN pip install --no-cache-dir /src --constraint /tmp/constraints.txt

ENV ANCHORSCOPE_CACHE=/opt/anchorscope
RUN anchorscope models --install smollm2-135m

WORKDIR /data
ENTRYPOINT ["anchorscope"]
CMD ["--help"]
