package soak

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"exnet/directsockets"
)

// redisUser stores values in a Redis server under exn-run, by direct sockets, and looks whether
// they are still there.
type redisUser struct {
	*client
	run  string // the server's run_id
	have map[string]redisValue
}

// redisValue is a value as its seed and length.
type redisValue struct {
	seed uint64
	n    int
}

const redisKeys = 40

// session is a connection of up to 200 commands.
func (u *redisUser) session(rnd *rand.Rand) {
	p, r, ok := u.dial("redis", u.job.Redis, "redis", directsockets.DialContext, portRedis, rnd)
	if !ok {
		return
	}
	defer p.Close()
	conn := &redisConn{p, bufio.NewReaderSize(p, pieceLen)}
	var t tally
	err := func() error {
		info, err := conn.do("INFO", "server")
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(string(info), "run_id:")
		if run, _, _ := strings.Cut(rest, "\r"); run != u.run { // it has been started again
			u.run, u.have = run, make(map[string]redisValue)
		}
		for range 1 + rnd.IntN(200) {
			if u.gate.closing() {
				break
			}
			key := fmt.Sprintf("node%d:%d", u.job.Node, rnd.IntN(redisKeys))
			value, known := u.have[key]
			if known && rnd.IntN(2) == 0 {
				got, err := conn.do("GET", key)
				if err != nil {
					return err
				}
				if !bytes.Equal(got, newStream(value.seed).next(value.n)) {
					return fmt.Errorf("%w: %s: a value of %d bytes, want %d", errMismatch, key, len(got), value.n)
				}
				t.Answers++
				t.Bytes += uint64(len(got))
			} else {
				value = redisValue{rnd.Uint64(), int(logSize(rnd, 200_000))}
				delete(u.have, key) // it may be stored, though there is no answer
				got, err := conn.do("SET", key, string(newStream(value.seed).next(value.n)))
				if err == nil && string(got) != "OK" {
					err = fmt.Errorf("%w: SET: %.40q", errMismatch, got)
				}
				if err != nil {
					return err
				}
				u.have[key] = value
				t.Answers++
				t.Bytes += uint64(value.n)
			}
			t.Messages++
			if _, both := direct(p.Conn); both && r.Direct.IsZero() {
				r.Direct = time.Now()
			}
			time.Sleep(time.Duration(rnd.IntN(20_000)) * time.Microsecond)
		}
		return nil
	}()
	u.done(r, p.Conn, t, err, 1)
}

// redisConn speaks Redis's protocol (RESP2).
type redisConn struct {
	w io.Writer
	r *bufio.Reader
}

// do sends a command and returns the answer.
func (c *redisConn) do(args ...string) ([]byte, error) {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := c.w.Write(b); err != nil {
		return nil, err
	}
	line, err := c.r.ReadString('\n')
	if err != nil {
		return nil, shortened(err)
	}
	kind, rest := line[0], strings.TrimSuffix(line[1:], "\r\n")
	switch kind {
	case '+':
		return []byte(rest), nil
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n > 1<<20 {
			return nil, fmt.Errorf("%w: %q", errMismatch, line)
		}
		if n < 0 {
			return nil, nil
		}
		value := make([]byte, n+2)
		if _, err := io.ReadFull(c.r, value); err != nil {
			return nil, shortened(err)
		}
		return value[:n], nil
	case '-':
		return nil, fmt.Errorf("redis: %s", rest)
	}
	return nil, fmt.Errorf("%w: %.40q", errMismatch, line)
}

func shortened(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: where an answer was due", errShort)
	}
	return err
}
