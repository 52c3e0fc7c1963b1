FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS
ARG TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# .git is here, too: it is where the program's version comes from.
# The replaced image's command name works too. scratch has no shell, so the link is made here.
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
      go build -trimpath -ldflags "-s -w" -o /out/bin/envoy-rls ./cmd/envoy-rls \
 && ln -s envoy-rls /out/bin/ratelimit

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/bin/ /bin/
COPY config/demo.yaml /etc/envoy-rls/rules/
# nobody, by number: scratch has no /etc/passwd, and Kubernetes' runAsNonRoot looks at numbers only.
USER 65534:65534
# gRPC, HTTP (health and metrics), admin (loopback unless told otherwise)
EXPOSE 8081 8080 6070
ENTRYPOINT ["/bin/envoy-rls"]
CMD ["serve", "--rules=/etc/envoy-rls/rules"]
