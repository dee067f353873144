package mirrormsg

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/internal/invariant"
)

var tagsType = reflect.TypeFor[kmsg.Tags]()

// fill sets every exported field to a random value; strings are short and may be empty.
func fill(r *rand.Rand, v reflect.Value) {
	if v.Type() == tagsType {
		tags := v.Addr().Interface().(*kmsg.Tags)
		for range r.IntN(3) {
			tags.Set(100+r.Uint32N(1000), []byte("unknown")[:r.IntN(8)])
		}
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.Uint64()) >> r.IntN(64) >> (64 - v.Type().Bits()))
	case reflect.String:
		v.SetString("täxt, 0123456789"[:[]int{0, 1, 3, 17}[r.IntN(4)]])
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(r.Uint64() & 0xff)
		}
	case reflect.Pointer:
		if r.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem())
		}
	case reflect.Slice:
		if n := r.IntN(4); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(r, v.Index(i))
			}
		} else {
			v.SetZero()
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "Version" {
				fill(r, v.Field(i))
			}
		}
	default:
		panic("BUG: " + v.Kind().String())
	}
}

type codec interface {
	AppendTo([]byte) []byte
	ReadFrom([]byte) error
}

func allMessages() []codec {
	var all []codec
	for k := FirstKey; k <= LastKey; k++ {
		req := RequestForKey(k)
		all = append(all, req, req.ResponseKind())
	}
	return append(all, &LastMirrorEpochs{}, &PartitionState{})
}

func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1279, 1289))
	rounds := 200
	if invariant.Race { // all of them without the race detector
		rounds = 50
	}
	for _, m := range allMessages() {
		typ := reflect.TypeOf(m).Elem()
		t.Run(typ.Name(), func(t *testing.T) {
			for range rounds {
				in := reflect.New(typ)
				fill(r, in.Elem())
				if req, ok := in.Interface().(*ListMirrorsRequest); ok {
					req.UnknownTags = kmsg.Tags{} // the generator does not decode a request without fields
				}
				encoded := in.Interface().(codec).AppendTo(nil)
				out := reflect.New(typ).Interface().(codec)
				if err := out.ReadFrom(encoded); err != nil {
					t.Fatalf("decode: %v", err)
				}
				if !reflect.DeepEqual(in.Interface(), out) {
					t.Fatalf("decoded %+v\nwant %+v", out, in.Interface())
				}
				// Every cut is an error, except that nothing at the end may be missing either.
				for i := range encoded {
					if typ.Name() == "ListMirrorsRequest" {
						break
					}
					if err := reflect.New(typ).Interface().(codec).ReadFrom(encoded[:i]); err == nil {
						t.Fatalf("%d of %d bytes decode without an error", i, len(encoded))
					}
				}
			}
		})
	}
}

func TestKeysAndNames(t *testing.T) {
	versions := MaxVersions()
	for k := FirstKey; k <= LastKey; k++ {
		req := RequestForKey(k)
		if req.Key() != k || req.ResponseKind().Key() != k || req.MaxVersion() != 0 || !req.IsFlexible() {
			t.Errorf("key %d: %T has key %d, response %d, version %d, flexible %v", k, req, req.Key(), req.ResponseKind().Key(), req.MaxVersion(), req.IsFlexible())
		}
		if want := NameForKey(k) + "Request"; reflect.TypeOf(req).Elem().Name() != want {
			t.Errorf("key %d is %T, want %s", k, req, want)
		}
		if v, ok := versions.LookupMaxKeyVersion(k); !ok || v != 0 {
			t.Errorf("MaxVersions has %d, %v for key %d", v, ok, k)
		}
	}
	if RequestForKey(LastKey+1) != nil || NameForKey(FirstKey-1) != "" {
		t.Error("a key that is not ours has a request or a name")
	}
}

func TestDefaults(t *testing.T) {
	start := NewStartMirrorTopicsRequest()
	stop := NewStopMirrorTopicsRequest()
	part := NewDescribeMirrorsResponseMirrorTopicPartition()
	mirror := NewDescribeMirrorsResponseMirror()
	bump := NewBumpLeaderEpochsRequestTopicPartition()
	topic := NewStartMirrorTopicsRequestTopic()
	for name, ok := range map[string]bool{
		"start":     start.StateOffset == -1 && !start.DryRun && !start.Overwrite,
		"stop":      stop.StateOffset == -1 && stop.WaitLagZeroMs == -1,
		"partition": part.SourceOffset == -1 && part.DestinationOffset == -1 && part.Lag == -1 && part.LastMirrorEpoch == -1 && part.LastMirrorOffset == -1 && part.LagMs == -1 && part.LagAgeMs == -1,
		"mirror":    mirror.AuthorizedOperations == UnknownAuthorizedOperations,
		"bump":      bump.MinLeaderEpoch == -1 && bump.BarrierEnd == -1,
		"topic":     topic.NumPartitions == -1,
	} {
		if !ok {
			t.Errorf("%s: defaults differ from SPEC section 9", name)
		}
	}
	// Tagged fields at their defaults take no bytes: version 0 keeps the published body.
	if got, want := len(stop.AppendTo(nil)), 4; got != want {
		t.Errorf("an empty stop request has %d bytes, want %d", got, want)
	}
}

// The wire bytes of one request, written out by hand from SPEC section 9.
func TestStopRequestBytes(t *testing.T) {
	req := NewStopMirrorTopicsRequest()
	req.MirrorName = "m"
	topic := NewStopMirrorTopicsRequestTopic()
	topic.TopicID = [16]byte{15: 7}
	topic.TopicName = "ab"
	req.Topics = append(req.Topics, topic)
	req.Patterns = []string{"x.*"}
	req.DryRun = true
	want := []byte{2, 'm', 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 3, 'a', 'b', 0, 2, 4, 'x', '.', '*', 1, 1, 1, 1}
	if got := req.AppendTo(nil); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
