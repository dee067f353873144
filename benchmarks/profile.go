package main

import (
	"context"
	"errors"
)

func profileCommand(context.Context, []string) error { return errors.New("x") }
