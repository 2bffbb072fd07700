#!/bin/sh
# Train a sentence model and a G-Transformer (group) on a synthetic corpus, each with one core, and compare them. The
# German word for "it" depends on the sentences before. The same command continues what was interrupted.
set -eu
out=${OUT:-docmt-demo-training} documents=${DOCUMENTS:-8000} tests=${TESTS:-100} steps=${STEPS:-800}
recipe=$(dirname "$0")/demo.yaml
export OMP_NUM_THREADS=1 # their tensors are too small for more threads

if [ ! -f "$out/store/statistics.json" ]; then
    PYTHONPATH=$(dirname "$0")/.. python -m benchmarks.synthetic "$out/corpus" \
        --train "$documents" --dev "$tests" --test "$tests"
    docmt prepare --store "$out/store" --train "$out/corpus/train.en" "$out/corpus/train.de" --overwrite \
        --dev "$out/corpus/dev.en" "$out/corpus/dev.de" --source-language en --target-language de --vocabulary-size 2000
fi

train() {
    if [ -d "$out/$1/model" ]; then
        echo "$out/$1 is trained"
    elif [ -d "$out/$1/checkpoints" ]; then
        docmt train --resume "$out/$1"
    else
        docmt train "$recipe" --store "$out/store" --run "$out/$1" --system "$1" --max-steps "$steps"
    fi
}
train sentence &
train group
wait $!

docmt evaluate --systems "$out/sentence" "$out/group" --source "$out/corpus/test.en" --reference "$out/corpus/test.de"
docmt probe "$out/sentence" "$out/group" --suite "$out/corpus/test.contrastive.jsonl"
echo "try: docmt translate $out/group YOUR_FILE.txt"
