package velo

import (
	"reflect"
	"testing"

	"exnet/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func sizeof[T any]() uintptr { return reflect.TypeFor[T]().Size() }
