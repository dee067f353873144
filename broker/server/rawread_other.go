//go:build !linux

package server

import "errors"

const haveRawRead = false

func readRaw(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }
