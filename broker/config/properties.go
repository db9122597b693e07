package config

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxProperties bounds a properties file, bytes.
const maxProperties = 1 << 20

// ReadProperties reads Java's properties syntax, as server.properties has it: key=value, key:value or key value, # and !
// comments, backslash escapes and continued lines. A key set twice is an error that names both lines. name is for errors.
func ReadProperties(name string, r io.Reader) (map[string]string, error) {
	sc := bufio.NewScanner(io.LimitReader(r, maxProperties))
	sc.Buffer(make([]byte, 0, 4096), maxProperties)
	out, at := map[string]string{}, map[string]int{}
	var line string
	n, start := 0, 0
	for sc.Scan() {
		n++
		text := strings.TrimLeft(sc.Text(), " \t\f")
		if line == "" {
			start = n
			if text == "" || text[0] == '#' || text[0] == '!' {
				continue
			}
		}
		text = strings.TrimSuffix(text, "\r")
		if trailing := len(text) - len(strings.TrimRight(text, `\`)); trailing%2 == 1 {
			line += text[:len(text)-1]
			continue
		}
		key, value, err := splitProperty(line + text)
		line = ""
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, start, err)
		}
		if before, ok := at[key]; ok {
			return nil, fmt.Errorf("%s:%d: %s is set already in line %d", name, start, key, before)
		}
		at[key], out[key] = start, value
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, n+1, err)
	}
	if line != "" {
		return nil, fmt.Errorf("%s:%d: the file ends in a continued line", name, start)
	}
	return out, nil
}

func splitProperty(line string) (key, value string, err error) {
	end := len(line)
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
		} else if strings.IndexByte("=: \t\f", line[i]) >= 0 {
			end = i
			break
		}
	}
	rest := strings.TrimLeft(line[end:], " \t\f")
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = rest[1:]
	}
	if key, err = unescape(line[:end]); err != nil {
		return "", "", err
	}
	if key == "" {
		return "", "", fmt.Errorf("no key before %q", line[end:])
	}
	value, err = unescape(strings.TrimLeft(rest, " \t\f"))
	return key, strings.TrimSpace(value), err
}

func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			if i+5 > len(s) {
				return "", fmt.Errorf("short \\u escape in %q", s)
			}
			r, err := strconv.ParseUint(s[i+1:i+5], 16, 32)
			if err != nil {
				return "", fmt.Errorf("bad \\u escape in %q", s)
			}
			b.WriteRune(rune(r))
			i += 4
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), nil
}
