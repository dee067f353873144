package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"stet/broker/log/dumplog"
	"stet/broker/mirrormsg"
)

func dumpLogCommand() *cobra.Command {
	var o dumplog.Options
	var files string
	var mirrorState, offsets bool
	cmd := &cobra.Command{
		Use:   "dump-log",
		Short: "Print segment, index and snapshot files as Kafka's dump-log does",
		Long: "Print segment, index, snapshot and checkpoint files in the lines of Kafka's dump-log, control batches included.\n" +
			"What is bad is named on stderr with file and place, and the exit code is 1. Give a partition's directory, or a whole\n" +
			"log directory, to compare its indexes, snapshots and checkpoints with the batches of its log.\n\n" +
			"With --json every line is an object with a \"type\": run (the first, with the schema), file, batch, record, offsetIndexEntry,\n" +
			"timeIndexEntry, abortedTransaction, producer, epoch, checkpoint, empty, sane, ignored, finding (file, position, offset, entry,\n" +
			"problem), end (the last, with the number of files and findings, and what could not be read).",
		Example: "  stet dump-log --files stet-data/orders-0/00000000000000000000.log --deep-iteration --print-data-log\n" +
			"  stet dump-log --files stet-data/orders-0 --index-sanity-check\n" +
			"  stet dump-log --files stet-data/orders-0 --print-data-log --json\n" +
			"  stet dump-log --files stet-data/__mirror_state-7/00000000000000000000.log --mirror-state-decoder",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("dump-log takes files with --files: stet dump-log --files %s", strings.Join(args, ","))
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			if o.MaxBytes <= 0 {
				return usagef("--max-bytes %d: it must be positive", o.MaxBytes)
			}
			var list []string
			for _, f := range strings.Split(files, ",") {
				if f = strings.TrimSpace(f); f != "" {
					list = append(list, f)
				}
			}
			if len(list) == 0 {
				return usagef("dump-log needs --files FILE,...")
			}
			if o.MaxBytes == math.MaxInt32 {
				o.MaxBytes = 0
			}
			if mirrorState {
				o.Decoder, o.PrintDataLog = mirrorStateDecoder, true
			}
			if offsets {
				o.Decoder, o.PrintDataLog = offsetsDecoder, true
			}
			if mirrorState && offsets {
				return usagef("--mirror-state-decoder and --offsets-decoder exclude each other")
			}
			return dumplog.Run(os.Stdout, os.Stderr, list, o)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&files, "files", "", "files and directories to print, separated by commas")
	fl.BoolVar(&o.DeepIteration, "deep-iteration", false, "print every record of a batch")
	fl.BoolVar(&o.PrintDataLog, "print-data-log", false, "print keys and values too")
	fl.BoolVar(&o.SkipRecordMetadata, "skip-record-metadata", false, "print keys and values only")
	fl.BoolVar(&o.IndexSanityCheck, "index-sanity-check", false, "check indexes without printing them")
	fl.BoolVar(&o.VerifyIndexOnly, "verify-index-only", false, "compare indexes with the log without printing them")
	fl.Int64Var(&o.MaxBytes, "max-bytes", math.MaxInt32, "bytes of each log file to read")
	fl.BoolVar(&o.JSON, "json", false, "print one JSON object per line (schema "+dumplog.Schema+")")
	fl.BoolVar(&offsets, "offsets-decoder", false, "print keys and values of __consumer_offsets as JSON")
	fl.BoolVar(&mirrorState, "mirror-state-decoder", false, "print keys and values of __mirror_state as JSON")
	return cmd
}

// mirrorStateDecoder prints records of __mirror_state as Kafka prints coordinator records.
func mirrorStateDecoder(_ int64, key, value []byte) (k, v string) {
	var sk mirrormsg.StateRecordKey
	if err := sk.ReadFrom(key); err != nil {
		return "<" + err.Error() + ">", ""
	}
	data := jsonObject{{"mirrorId", mirrormsg.UUIDString(sk.MirrorID)}, {"topicId", mirrormsg.UUIDString(sk.TopicID)}, {"partition", sk.Partition}}
	if sk.Type == mirrormsg.StateRecordLastMirror {
		data = append(data, jsonField{"sourceClusterId", sk.SourceClusterID})
	}
	k = data.wrap("type", strconv.Itoa(int(sk.Type)))
	if value == nil {
		return k, "<DELETE>"
	}
	decoded, err := mirrormsg.DecodeStateValue(sk.Type, value)
	if err != nil {
		return k, "<" + err.Error() + ">"
	}
	return k, fieldsOf(reflect.ValueOf(decoded).Elem()).wrap("version", "0")
}

// jsonObject keeps the order of its fields.
type jsonObject []jsonField

type jsonField struct {
	name  string
	value any
}

func (o jsonObject) wrap(name, value string) string {
	b, err := json.Marshal(jsonObject{{name, value}, {"data", o}})
	if err != nil {
		return "<" + err.Error() + ">"
	}
	return string(b)
}

// MarshalJSON implements json.Marshaler.
func (o jsonObject) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		v, err := json.Marshal(f.value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		fmt.Fprintf(&b, "%q:%s", f.name, v)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// fieldsOf turns a message struct into an object; codec fields are left out.
func fieldsOf(v reflect.Value) jsonObject {
	var o jsonObject
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Name == "Version" || f.Name == "UnknownTags" || !f.IsExported() {
			continue
		}
		o = append(o, jsonField{lowerCamel(f.Name), jsonValue(v.Field(i))})
	}
	return o
}

func jsonValue(v reflect.Value) any {
	if id, ok := v.Interface().([16]byte); ok {
		return mirrormsg.UUIDString(id)
	}
	switch v.Kind() {
	case reflect.Struct:
		return fieldsOf(v)
	case reflect.Slice:
		out := make([]any, v.Len())
		for i := range out {
			out[i] = jsonValue(v.Index(i))
		}
		return out
	}
	return v.Interface()
}

// lowerCamel: StopID becomes stopId, as Kafka's JSON names are.
func lowerCamel(s string) string {
	r := []rune(s)
	r[0] = unicode.ToLower(r[0])
	out := strings.ReplaceAll(string(r), "IDs", "Ids")
	return strings.ReplaceAll(out, "ID", "Id")
}
