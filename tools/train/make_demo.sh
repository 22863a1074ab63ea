#!/usr/bin/env bash
# Makes data/demo from the text sets, from tokenizer to dumps. Hours on two cores; every stage that exists is kept.
#
#     tools/train/make_demo.sh DATA WORK
#
# DATA holds text_fiction, text_govweb, text_techdocs, gsm8k and scitldr; WORK receives what is too large to ship.
# Needs the package with its extras: pip install ".[train]"
set -euo pipefail
data=$1 work=$2
tools=$(cd "$(dirname "$0")/.." && pwd)
demo=$tools/../data/demo
mkdir -p "$work" "$demo"

[ -e "$work/tokenizer.json" ] || python "$tools/train/prepare_demo.py" "$data" "$work"

# 1. All heads on text: windows drawn by size of a set times its weight.
train=$work/train valid=$work/valid
python "$tools/train/bpd.py" "$work/bpd" --steps 2900 --compile \
  --train "fiction=$train.fiction.npy*0.6" "techdocs=$train.techdocs.npy*0.9" "govweb=$train.govweb.npy*1.3" \
          "gsm8k=$train.gsm8k.npy*2.5" "scitldr=$train.scitldr.npy*3" \
  --valid "fiction=$valid.fiction.npy" "techdocs=$valid.techdocs.npy" "govweb=$valid.govweb.npy" \
          "gsm8k=$valid.gsm8k.npy" "scitldr=$valid.scitldr.npy"

# 2. Heads 2..9 on the model's own continuations at temperature 0.7, the target frozen.
own() { python "$tools/train/sample_text.py" "$work/bpd/model.safetensors" --tokenizer "$work/tokenizer.json" "$@"; }
[ -e "$work/own.npz" ] || own --prompts "$work/prompts.train.jsonl" --minutes 9 -o "$work/own.npz"
[ -e "$work/own.valid.npz" ] || own --prompts "$work/prompts.valid.jsonl" --limit 256 --seed 2 -o "$work/own.valid.npz"
python "$tools/train/bpd.py" "$work/distilled" --distill "$work/bpd/model.safetensors" --steps 1000 --every 100 \
  --muon-lr 0.025 --train "own=$work/own.npz" --valid "own=$work/own.valid.npz"

# 3. The language model: Katz 4-gram of the train splits, pruned.
rescore lm build "$work"/train.*.npy --tokenizer "$work/tokenizer.json" --max-ngrams 850k -o "$demo/demo.ngram"

# 4. Dumps: of the valid splits to choose alpha, of the test splits to ship.
cp "$work/tokenizer.json" "$work/distilled/model.safetensors" "$demo/"
dump() { rescore dump make --model "$demo/model.safetensors" --name "rescore demo, 9 heads" "$@"; }
for kind in forced sampled; do
  [ -e "$work/valid.$kind" ] || dump --prompts "$work/prompts.valid.jsonl" --kind $kind -o "$work/valid.$kind"
done
shipped() { dump --prompts "$work/prompts.test.jsonl" "$@"; }
[ -e "$demo/sampled" ] || shipped --kind sampled --top-k 12 -o "$demo/sampled"
[ -e "$demo/forced" ] || shipped --kind forced --top-k 8 -o "$demo/forced"
[ -e "$demo/greedy" ] || shipped --kind greedy --top-k 8 --limit 10 -o "$demo/greedy"
cp "$work/bpd/curve.jsonl" "$demo/curve.jsonl"
cp "$work/distilled/curve.jsonl" "$demo/curve.distill.jsonl"
for kind in forced sampled; do
  rescore tune "$work/valid.$kind" --lm "$demo/demo.ngram" -o "$work/settings.$kind.json"
done
