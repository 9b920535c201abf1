# Debian's Prometheus, called like the image of its makers, for machines that cannot pull that one:
#   docker build -f docker/prometheus.Dockerfile -t specnav-prometheus docker/observe
#   PROMETHEUS_IMAGE=specnav-prometheus docker compose -f docker/compose.observe.yaml up
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends prometheus \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
    && rm /etc/prometheus/prometheus.yml \
    && mkdir -p /prometheus && chown 65534:65534 /prometheus
USER 65534:65534
VOLUME /prometheus
EXPOSE 9090
ENTRYPOINT ["prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
