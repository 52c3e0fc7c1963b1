package limiter

// leakyBucket is tokenBucket, whose B is what is in the bucket rather than what is missing from it. As a
// queue, which delays what it holds, a rate limit service can't offer one.
func leakyBucket() kernel {
	k := tokenBucket
	k.name = "leaky_bucket"
	return k
}
