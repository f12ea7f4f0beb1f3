#!/usr/bin/env sh
# Tests the adapters against the libraries themselves, each in an environment of its own, and records what lm-polygraph's
# metrics give (tests/laws/adapters/polygraph_metrics.json). Called by `make adapters`; about 6 GB of disk.
#   sh tools/test_adapters.sh FOLDER [lm-polygraph|truthtorchlm|uqlm|inspect-ai|trackers]...
# The libraries ask for more than their import needs, and partly for what does not exist for this Python any more: they are
# installed without dependencies, and what is imported is named here. torch comes first: a bare one may pull gigabytes.
set -eu
cd "$(dirname "$0")/.."
folder=${1:?where to make the environments}
shift
python=${PYTHON:-python3}
here=$(pwd)
quick="--disable-pip-version-check --quiet"

make_environment() { # NAME: an environment with torch
    if [ ! -x "$folder/$1/bin/python" ]; then
        "$python" -m venv "$folder/$1"
        "$folder/$1/bin/python" -m pip install $quick "$(grep '^torch==' constraints.txt)"
    fi
    pip="$folder/$1/bin/python -m pip install $quick"
}

ours() { # anchorscope and what runs its tests
    $pip --constraint constraints.txt --editable . pytest hypothesis
}

run_tests() { # ENVIRONMENT FILE...
    environment=$1
    shift
    PYTHONPATH="$here/src" OMP_NUM_THREADS=1 LITELLM_LOCAL_MODEL_COST_MAP=True \
        "$folder/$environment/bin/python" -m pytest -q -rs "$@"
}

for library in ${*:-lm-polygraph truthtorchlm uqlm inspect-ai trackers}; do
    make_environment "$library"
    case $library in
        lm-polygraph)
            ours
            $pip --no-deps lm-polygraph==0.7.0
            $pip --constraint constraints.txt beautifulsoup4 bert-score boostedprob datasets dill diskcache einops evaluate \
                flask hydra-core nltk openai pandas protobuf rouge-score sacrebleu sentence-transformers sentencepiece \
                spacy wget
            "$folder/$library/bin/python" tools/record_polygraph.py
            run_tests "$library" tests/laws/adapters/test_lm_polygraph.py tests/laws/adapters/test_recorded_parity.py
            ;;
        truthtorchlm)
            ours
            $pip --no-deps truthtorchlm==0.1.19 evaluate instructor litellm outlines outlines_core sentence-transformers \
                wandb
            $pip --constraint constraints.txt absl-py aiohttp cloudpickle datasets diskcache docstring-parser fastuuid \
                genson gitpython httpx importlib-metadata jsonpath_ng jsonschema nest_asyncio nltk openai \
                opentelemetry-api opentelemetry-sdk pandas protobuf pydantic-settings python-dotenv referencing requests \
                rouge_score sentencepiece sentry-sdk tenacity termcolor tiktoken
            run_tests "$library" tests/laws/adapters/test_truthtorchlm.py
            ;;
        uqlm)
            $pip --only-binary :all: uqlm==0.6.7 'numpy<2' 'transformers<5' 'pyarrow<22' pytest hypothesis
            run_tests "$library" tests/unit/adapters/test_uqlm_files.py
            ;;
        inspect-ai)
            ours
            $pip --constraint constraints.txt inspect_ai==0.3.285 fastapi uvicorn prometheus-client httpx pyarrow
            run_tests "$library" tests/laws/adapters/test_inspect_ai.py tests/laws/datasets/test_logs.py
            ;;
        trackers) # mlflow asks for an older pyarrow than ours; a local database needs no more than alembic
            ours
            $pip --constraint constraints.txt mlflow-skinny==3.17.2 wandb==0.31.0 alembic sqlalchemy \
                opentelemetry-sdk
            $pip --no-deps mlflow==3.17.2 mlflow-tracing==3.17.2
            run_tests "$library" tests/nightly/adapters/test_trackers.py
            ;;
        *)
            echo "unknown library '$library'; allowed: lm-polygraph, truthtorchlm, uqlm, inspect-ai, trackers" >&2
            exit 2
            ;;
    esac
done
