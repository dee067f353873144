package source

import (
	"context"
	"errors"
	"fmt"

	"stet/broker/mirrormsg"
)

// DescribeMirrors asks a source that is itself Stet about its mirrors. ok is false when the source does not
// advertise the request: then it has none (SPEC 4.7). A refusal of the whole request is an error.
func (s *Source) DescribeMirrors(ctx context.Context, req *mirrormsg.DescribeMirrorsRequest) (resp *mirrormsg.DescribeMirrorsResponse, ok bool, err error) {
	kresp, err := s.anyBroker(ctx, req, 0)
	if errors.Is(err, ErrVersion) {
		return nil, false, nil
	}
	if err != nil {
		return nil, true, err
	}
	resp = kresp.(*mirrormsg.DescribeMirrorsResponse)
	if resp.ErrorCode != 0 {
		text := ""
		if resp.ErrorMessage != nil {
			text = ": " + *resp.ErrorMessage
		}
		return resp, true, fmt.Errorf("the source refuses DescribeMirrors: %w%s", mirrormsg.ErrorForCode(resp.ErrorCode), text)
	}
	return resp, true, nil
}
