process STREAMER_FILTER {
    tag "$meta.id"
    label 'process_medium'

    conda "${moduleDir}/environment.yml"

    input:
    tuple val(meta), path(reads)
    path index

    output:
    tuple val(meta), path("*.fastq.gz")    , emit: reads
    tuple val(meta), path("*.summary.json"), emit: summary
    path "*_mqc.json"                      , emit: multiqc
    path "versions.yml"                    , emit: versions

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: '--deplete --preset host-short'
    def prefix = task.ext.prefix ?: "${meta.id}"
    def outputs = meta.single_end
        ? "-o ${prefix}.clean.fastq.gz"
        : "--pairs -o ${prefix}.clean_1.fastq.gz --output2 ${prefix}.clean_2.fastq.gz"
    """
    streamer filter \\
        ${reads} \\
        --dictionary ${index} \\
        --threads ${task.cpus} \\
        --quiet \\
        ${args} \\
        --summary ${prefix}.summary.json \\
        ${outputs}

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        streamer: \$(streamer --version | sed 's/^streamer //')
    END_VERSIONS
    """

    stub:
    def prefix = task.ext.prefix ?: "${meta.id}"
    def names = meta.single_end
        ? "${prefix}.clean.fastq.gz"
        : "${prefix}.clean_1.fastq.gz ${prefix}.clean_2.fastq.gz"
    """
    echo "" | gzip | tee ${names} > /dev/null
    touch ${prefix}.summary.json ${prefix}.summary_mqc.json

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        streamer: \$(streamer --version | sed 's/^streamer //')
    END_VERSIONS
    """
}
