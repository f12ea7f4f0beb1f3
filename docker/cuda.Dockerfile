# anchorscope on NVIDIA GPUs: torch's wheel on PyPI brings the CUDA libraries, the host brings the driver.
#   docker build -f docker/cuda.Dockerfile -t anchorscope:cuda .
#   docker run --rm --gpus all -v "$PWD/runs:/data/runs" -v "$PWD/hub:/data/hub" -e HF_HOME=/data/hub \
#     anchorscope:cuda run --model OWNER/NAME --out runs/mine
FROM python:3.11-slim

# Triton, which torch compiles large work with, needs a C compiler.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*

COPY constraints.txt /tmp/constraints.txt
RUN pip install --no-cache-dir "$(grep '^torch==' /tmp/constraints.txt)"

COPY pyproject.toml README.md LICENSE /src/
COPY src /src/src
RUN pip install --no-cache-dir "/src[hub]" --constraint /tmp/constraints.txt

WORKDIR /data
ENTRYPOINT ["anchorscope"]
CMD ["--help"]
