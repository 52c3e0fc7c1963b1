package statsd

import (
	"math"
	"net"
	"strconv"
)

// plain writes lines for a statsd.
type plain struct {
	suffix string // of names
}

func (p *plain) write(conn net.Conn, samples []sample) error {
	var lines []byte
	for i := range samples {
		whole := len(lines)
		lines = p.appendLine(lines, &samples[i])
		if whole == 0 || len(lines) <= maxPacket {
			continue
		}
		if _, err := conn.Write(lines[:whole]); err != nil {
			return err
		}
		lines = append(lines[:0], lines[whole:]...)
	}
	_, err := conn.Write(lines)
	return err
}

func (p *plain) appendLine(b []byte, s *sample) []byte {
	b = append(append(append(b, s.name...), p.suffix...), ':')
	if s.kind == kindTime {
		b = strconv.AppendFloat(b, s.value, 'f', 3, 64)
	} else {
		b = strconv.AppendFloat(b, s.value, 'f', -1, 64)
	}
	b = append(append(b, '|'), s.kind...)
	if s.calls > 1 { // as if one in so many had been sampled; a server that divides and rounds down must get as many
		b = append(b, "|@"...)
		b = strconv.AppendFloat(b, math.Nextafter(1/float64(s.calls), 0), 'f', -1, 64)
	}
	return append(b, '\n')
}
