package velo

import (
	"reflect"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sizeof[T any]() uintptr { return reflect.TypeFor[T]().Size() }
