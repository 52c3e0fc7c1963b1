-- leaky_bucket.go's twin: the token bucket, whose b is what is in the bucket.
K[4] = K[3]
