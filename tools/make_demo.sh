#!/usr/bin/env bash
# Makes data/demo from the text sets, from tokenizer to dumps. Hours on two cores; every stage that exists is kept.
#
#     tools/make_demo.sh DATA WORK
#
# DATA holds text_fiction, text_govweb, text_techdocs, gsm8k and scitldr; WORK receives what is too large to ship.
# Needs the package with its extras: pip install ".[train]"
set -euo pipefail
data=$1 work=$2
tools=$(cd "$(dirname "$0")" && pwd)
demo=$tools/../data/demo
mkdir -p "$work" "$demo"

files() { for task in fiction techdocs govweb gsm8k scitldr; do echo "$task=$work/$1.$task.npy${!task-}"; done; }

[ -e "$work/tokenizer.json" ] || python "$tools/prepare_demo.py" "$data" "$work"

# 1. All heads on text, the weights being windows drawn per token of a set.
fiction='*0.6' techdocs='*0.9' govweb='*1.3' gsm8k='*2.5' scitldr='*3'
train=$(files train)
unset fiction techdocs govweb gsm8k scitldr
python "$tools/train_bpd.py" "$work/bpd" --train $train --valid $(files valid) --steps 2900 --compile

# 2. Heads 2..9 on the model's own continuations at temperature 0.7, the target frozen.
own() { python "$tools/sample_text.py" "$work/bpd/model.safetensors" --tokenizer "$work/tokenizer.json" "$@"; }
[ -e "$work/own.npz" ] || own --prompts "$work/prompts.train.jsonl" --minutes 12 -o "$work/own.npz"
[ -e "$work/own.valid.npz" ] || own --prompts "$work/prompts.valid.jsonl" --limit 256 --seed 2 -o "$work/own.valid.npz"
@@DISTILL@@

# 3. The language model: Katz 4-gram of the train splits, pruned.
rescore lm build "$work"/train.*.npy --tokenizer "$work/tokenizer.json" --max-ngrams 850k -o "$demo/demo.ngram"

# 4. Dumps: of the valid splits to choose alpha, of the test splits to ship.
cp "$work/tokenizer.json" "$work/distilled/model.safetensors" "$demo/"
dump() { python "$tools/dump_logits.py" "$demo/model.safetensors" --name "rescore demo, 9 heads" --tokenizer "$demo/tokenizer.json" "$@"; }
for kind in forced sampled; do
  [ -e "$work/valid.$kind" ] || dump --prompts "$work/prompts.valid.jsonl" --kind $kind -o "$work/valid.$kind"
  [ -e "$demo/$kind" ] || dump --prompts "$work/prompts.test.jsonl" --kind $kind -o "$demo/$kind"
done
[ -e "$demo/greedy" ] || dump --prompts "$work/prompts.test.jsonl" --kind greedy --limit 10 -o "$demo/greedy"
python "$tools/choose_alpha.py" "$work/valid.forced" "$work/valid.sampled" --lm "$demo/demo.ngram"
