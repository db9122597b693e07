package main

import (
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/varvelog/varve/broker/config"
)

// settings reads --set key=value flags; a key given twice is an error.
func settings(list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, kv := range list {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, usagef("--set %q must be key=value", kv)
		}
		if _, twice := out[k]; twice {
			return nil, usagef("--set %s is given twice", k)
		}
		out[k] = v
	}
	return out, nil
}

// fromEnvironment reads VARVE_LOG_SEGMENT_BYTES and the like: underscores are dots, letters small. Only names of known keys count,
// so that VARVE_ variables of other programs do no harm.
func fromEnvironment(environ []string) map[string]string {
	out := map[string]string{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		rest, ok := strings.CutPrefix(name, "VARVE_")
		if !ok {
			continue
		}
		key := strings.ReplaceAll(strings.ToLower(rest), "_", ".")
		if config.BrokerKey(key) != nil {
			out[key] = value
		}
	}
	return out
}

// merge lays the sources over one another, the last wins: defaults of the verb, file, environment, flags. What was refused is a usage
// error that names the key and what it takes.
func merge(sources ...map[string]string) (*config.Broker, []string, error) {
	all := map[string]string{}
	for _, s := range sources {
		maps.Copy(all, s)
	}
	c, inert, err := config.New(all)
	if err != nil {
		return nil, nil, usagef("%v", err)
	}
	return c, inert, nil
}

// readConfig reads a server.properties file.
func readConfig(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, usagef("--config: %v", err)
	}
	defer f.Close()
	props, err := config.ReadProperties(path, f)
	if err != nil {
		return nil, usagef("--config: %v", err)
	}
	return props, nil
}

// hostPort makes a PLAINTEXT listener out of HOST:PORT.
func hostPort(flag, text string) (string, error) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return "", usagef("%s %q must be HOST:PORT", flag, text)
	}
	return fmt.Sprintf("PLAINTEXT://%s", text), nil
}
