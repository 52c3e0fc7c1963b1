package main

// redisName is the process whose CPU time is Redis's.
const redisName = "redis-server"

// redisServer is a Redis on a free port that keeps nothing on disk.
func redisServer() (port string, _ command, _ error) {
	ports, err := freePorts(1)
	if err != nil {
		return "", command{}, err
	}
	return ports[0], command{
		name: redisName,
		argv: []string{redisName, "--bind", "127.0.0.1", "--port", ports[0],
			"--save", "", "--appendonly", "no"},
		ready: pongs(loopback(ports[0])),
	}, nil
}
