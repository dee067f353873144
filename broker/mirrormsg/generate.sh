#!/bin/sh
# Makes generated.go from definitions/ with franz-go's generator (PROTOCOL.md
# section 4). A line "@Name" in a definition stands for the fields of that shared
# struct, indented one level deeper; the anonymous types that come of it are
# replaced by the shared one, whose Version field is not encoded there.
set -eu
cd "$(dirname "$0")"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/definitions"
cp definitions/enums definitions/misc definitions/01_shared "$tmp/definitions/"
awk '
FNR == NR {
  if ($0 ~ /^[A-Z].* => not top level/) { name = $1; skip = 2; next }
  if (name != "" && skip > 0) { skip--; next } # comment and field of Version
  if ($0 == "") { name = "" }
  if (name != "") { body[name] = body[name] "      " $0 "\n" }
  next
}
/^@/ { printf "%s", body[substr($0, 2)]; next }
{ print }' definitions/01_shared definitions/02_mirrors > "$tmp/definitions/02_mirrors"
module=$(pwd)
(cd "$tmp" && go -C "$module" build -o "$tmp/gen" github.com/twmb/franz-go/generate && ./gen) > "$tmp/raw.go"
{
  echo "// The generator and its output are part of franz-go, see NOTICE in this folder."
  echo
  awk '
/^\/\/ RequestForKey returns/ { exit }
/^\/\/ MaxKey is/ { drop = 3 }
drop > 0 { drop--; next }
# Definitions of the anonymous copies of the shared structs.
/^type (Read|Write)MirrorStates(Request|Response)TopicPartition(State|LastMirror)/ { inside = 1; pending = "" }
/^func \(v \*(Read|Write)MirrorStates(Request|Response)TopicPartition(State|LastMirror)/ { inside = 1; pending = "" }
/^func New(Read|Write)MirrorStates(Request|Response)TopicPartition(State|LastMirror)/ { inside = 1; pending = "" }
inside { if ($0 == "}") inside = 0; next }
/^\/\// { pending = pending $0 "\n"; next }
{ printf "%s%s\n", pending, $0; pending = "" }' "$tmp/raw.go" |
  sed -E \
    -e 's/(Read|Write)MirrorStates(Request|Response)TopicPartitionState/PartitionState/g' \
    -e 's/(Read|Write)MirrorStates(Request|Response)TopicPartitionLastMirror/LastMirrorEpochs/g' \
    -e 's/\bv\.UnknownTags\.appendWithCount\(dst\)/appendTags(dst, \&v.UnknownTags)/g' \
    -e 's#"github.com/twmb/franz-go/pkg/kmsg/internal/kbin"#"github.com/twmb/franz-go/pkg/kbin"\n"github.com/twmb/franz-go/pkg/kmsg"#' \
    -e 's/^package kmsg/package mirrormsg/' \
    -e '/^"fmt"$/d' -e '/^"strings"$/d' \
    -e 's/\bUnknownTags Tags\b/UnknownTags kmsg.Tags/' \
    -e 's/ (Request|Response) \{/ kmsg.\1 {/g' \
    -e 's/r Requestor\)/r kmsg.Requestor)/g'
} > "$tmp/generated.go"
gofmt "$tmp/generated.go" > generated.go
