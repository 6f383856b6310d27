#!/bin/sh
# Compile a spec and fail below its gate: for any CI that runs a shell. Usage: gate.sh SPEC [OUT.kolm]
#
# Needs the `kolm` command (docs/client.md says how it is installed), KOLM_API_URL and KOLM_API_KEY. GATE_KEY (a commit's id, for instance) makes a repeated run
# wait for the compile that is under way instead of paying for a second one.
set -u
spec=${1:?"usage: gate.sh SPEC [OUT.kolm]"}
out=${2:-artifact.kolm}

kolm check "$spec" || exit $?
kolm compile "$spec" --watch --compare-last --out "$out" ${GATE_KEY:+--idempotency-key "ci-$GATE_KEY"}
status=$?
case $status in
    0) echo "gate passed: $out" ;;
    4) echo "gate missed: nothing was published" >&2 ;;
    5) echo "refused: a spend cap, a budget or the plan" >&2 ;;
    6) echo "not logged in: set KOLM_API_KEY" >&2 ;;
    7) echo "kolm does not answer: $KOLM_API_URL" >&2 ;;
    *) echo "the compile failed (exit $status)" >&2 ;;
esac
exit $status
