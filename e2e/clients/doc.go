// Package clients holds varve to the clients and tools of other languages, as processes: kcat (librdkafka), Kafka's Java client
// and command-line tools, aiokafka, confluent-kafka, kafkajs. The tests are behind the build tag `clients`; `make test-clients` installs what they
// need and runs them.
package clients
