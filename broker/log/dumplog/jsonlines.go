package dumplog

import (
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"
)

// Schema names the format of the JSON lines. The first line is {"schema","type":"run"}, the last one
// {"type":"end","files","findings","unreadable"}; every file begins with a line of type "file".
const Schema = "stet.dumplog/1"

type runLine struct {
	Schema string `json:"schema"`
	Type   string `json:"type"`
}

type endLine struct {
	Type       string   `json:"type"`
	Files      int      `json:"files"`
	Findings   int      `json:"findings"`
	Unreadable []string `json:"unreadable,omitempty"`
}

type fileLine struct {
	Type string `json:"type"` // file, ignored
	File string `json:"file"`
	Kind string `json:"kind,omitempty"`
}

type findingLine struct {
	Type     string `json:"type"`
	File     string `json:"file"`
	Position *int64 `json:"position"`
	Offset   *int64 `json:"offset"`
	Entry    *int64 `json:"entry"`
	Problem  string `json:"problem"`
}

type batchLine struct {
	Type                 string `json:"type"`
	BaseOffset           int64  `json:"baseOffset"`
	LastOffset           int64  `json:"lastOffset"`
	Count                int32  `json:"count"`
	BaseSequence         int32  `json:"baseSequence"`
	LastSequence         int32  `json:"lastSequence"`
	ProducerID           int64  `json:"producerId"`
	ProducerEpoch        int16  `json:"producerEpoch"`
	PartitionLeaderEpoch int32  `json:"partitionLeaderEpoch"`
	IsTransactional      bool   `json:"isTransactional"`
	IsControl            bool   `json:"isControl"`
	DeleteHorizonMs      *int64 `json:"deleteHorizonMs"`
	Position             int64  `json:"position"`
	TimestampType        string `json:"timestampType"`
	MaxTimestamp         int64  `json:"maxTimestamp"`
	Size                 int    `json:"size"`
	Magic                int8   `json:"magic"`
	CompressCodec        string `json:"compresscodec"`
	CRC                  uint32 `json:"crc"`
	IsValid              bool   `json:"isvalid"`
}

// recordLine: key and payload are there with PrintDataLog only; bytes that are not UTF-8
// come as base64; what a decoder says is embedded if it is JSON.
type recordLine struct {
	Type             string          `json:"type"`
	Offset           int64           `json:"offset"`
	Timestamp        int64           `json:"timestamp"`
	KeySize          int             `json:"keySize"`
	ValueSize        int             `json:"valueSize"`
	Sequence         int32           `json:"sequence"`
	HeaderKeys       []string        `json:"headerKeys"`
	Control          string          `json:"control,omitempty"`
	CoordinatorEpoch *int32          `json:"coordinatorEpoch,omitempty"`
	Key              json.RawMessage `json:"key,omitempty"`
	KeyBase64        string          `json:"keyBase64,omitempty"`
	Payload          json.RawMessage `json:"payload,omitempty"`
	PayloadBase64    string          `json:"payloadBase64,omitempty"`
}

type indexLine struct {
	Type     string `json:"type"`
	Offset   int64  `json:"offset"`
	Position int64  `json:"position"`
}

type timeLine struct {
	Type      string `json:"type"`
	Timestamp int64  `json:"timestamp"`
	Offset    int64  `json:"offset"`
}

type txnLine struct {
	Type             string `json:"type"`
	Version          int16  `json:"version"`
	ProducerID       int64  `json:"producerId"`
	FirstOffset      int64  `json:"firstOffset"`
	LastOffset       int64  `json:"lastOffset"`
	LastStableOffset int64  `json:"lastStableOffset"`
}

type producerLine struct {
	Type                  string `json:"type"`
	ProducerID            int64  `json:"producerId"`
	ProducerEpoch         int16  `json:"producerEpoch"`
	CoordinatorEpoch      int32  `json:"coordinatorEpoch"`
	CurrentTxnFirstOffset *int64 `json:"currentTxnFirstOffset"`
	LastTimestamp         int64  `json:"lastTimestamp"`
	FirstSequence         *int32 `json:"firstSequence,omitempty"`
	LastSequence          *int32 `json:"lastSequence,omitempty"`
	LastOffset            *int64 `json:"lastOffset,omitempty"`
	OffsetDelta           *int32 `json:"offsetDelta,omitempty"`
}

type epochLine struct {
	Type        string `json:"type"`
	Epoch       int32  `json:"epoch"`
	StartOffset int64  `json:"startOffset"`
}

type checkpointLine struct {
	Type      string `json:"type"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// checkLine says that a file is good: IndexSanityCheck, or a partition that was compared.
type checkLine struct {
	Type string `json:"type"` // sane, empty
	File string `json:"file"`
}

// line prints one object. What it is made of always encodes; a failing writer shows at the end.
func (p *printer) line(v any) { _ = p.enc.Encode(v) }

// jsonText is text as a JSON string, or base64 of bytes that are none.
func jsonText(b []byte) (asText json.RawMessage, asBase64 string) {
	if b == nil {
		return json.RawMessage("null"), ""
	}
	if !utf8.Valid(b) {
		return nil, base64.StdEncoding.EncodeToString(b)
	}
	s, err := json.Marshal(string(b))
	if err != nil {
		return nil, base64.StdEncoding.EncodeToString(b)
	}
	return s, ""
}

// embedded is what a decoder said.
func embedded(s string) json.RawMessage {
	if s == "" || s == "<DELETE>" {
		return json.RawMessage("null")
	}
	if json.Valid([]byte(s)) {
		return json.RawMessage(s)
	}
	t, _ := jsonText([]byte(s))
	return t
}
