package api

import (
	"context"
	"sort"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ApiVersions (key 18), versions 0-4.
//
// Lists exactly what is served. A newer version is answered with a version 0
// body and UNSUPPORTED_VERSION that names the range (KIP-511); the response
// header is version 0 at every version. Produce says 0 as its minimum, as Kafka
// does (KAFKA-18659), for librdkafka up to 2.11.0. No finalized features:
// group.version and transaction.version are not served.
var apiVersions = handler{key: keyAPIVersions, min: 0, max: 4, serve: func(_ context.Context, _ *API, _ *Request) (Reply, error) {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ApiKeys = advertised
	return resp, nil
}}

var advertised []kmsg.ApiVersionsResponseApiKey

// advertise fills the answer from the table, once.
func advertise() {
	for _, h := range table {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = h.key, h.min, h.max
		if h.advertise != 0 {
			k.MinVersion = 0
		}
		advertised = append(advertised, k)
	}
	sort.Slice(advertised, func(i, j int) bool { return advertised[i].ApiKey < advertised[j].ApiKey })
}

func unsupportedAPIVersions() *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = keyAPIVersions, apiVersions.min, apiVersions.max
	resp.ApiKeys = append(resp.ApiKeys, k)
	return resp
}
